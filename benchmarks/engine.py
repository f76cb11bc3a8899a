"""The engine beside transformers, llama.cpp and vLLM: python -m benchmarks.engine.

Same weights, prompts and token counts in one run, greedy, for each batch size of ``--batch``.
llama.cpp takes part where ``--llamacpp-python`` names an interpreter that has xllamacpp and gguf,
vLLM's CPU build where ``--vllm-python`` names one that has vllm; both plain and with EAGLE-3. Arms
take turns group by group, in an order that rotates, so that what else the machine does hits all of
them; medians over repetitions are compared. Outputs that loop are left out before anything is
timed. The last table says where a step's time goes, and how far it is above the time that reading
its weights takes.

Run it on a quiet machine, with OMP_NUM_THREADS set to --threads. It needs the dev requirements.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine_peers import Case, Generate, Outputs, peer_arms, transformers_arm
from benchmarks.engine_report import as_markdown, as_text
from specbench.config import EngineConfig, SpecConfig
from specbench.demo import DRAFT, TARGET
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.metrics.looping import REPEATED_4GRAMS, repeated_share
from specbench.request import Request, SamplingParams
from specbench.trace import StepTrace
from specbench.workload import load_workload

REFERENCES = ("transformers", "llama.cpp", "vLLM", "best peer", "plain")


@dataclass(slots=True)
class Arm:
    """One way of generating at one batch size, what each group took, and its steps."""

    name: str
    batch: int
    spec: SpecConfig | None
    generate: Generate | None = None
    seconds: list[list[float]] = field(default_factory=list)
    steps: list[StepTrace] = field(default_factory=list)
    same: int = 0
    compared: int = 0


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--draft", type=Path, default=DRAFT)
    parser.add_argument("--workload", default="default")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="batch sizes, up to 8")
    parser.add_argument("--chains", type=int, nargs="*", default=[1, 2, 3, 4, 5, 6, 7])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--capture-ids", type=lambda s: tuple(map(int, s.split(","))))
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--llamacpp-python", type=Path, help="interpreter with xllamacpp and gguf")
    parser.add_argument("--vllm-python", type=Path, help="interpreter with vLLM's CPU build")
    parser.add_argument("--peer-steps", type=int, default=3, help="K of the peers' EAGLE-3")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    parser.add_argument("--markdown", type=Path, help="write the tables as Markdown")
    return parser.parse_args()


def main() -> None:
    """Parse, run, print and write."""
    args = parsed()
    config = EngineConfig(
        device="cpu",
        dtype=args.dtype,
        threads=args.threads,
        max_batch_size=max(args.batch),
        kernels=args.kernels,
    )
    engine = Engine(ModelPair.load(args.target, args.draft, config, args.capture_ids), config)
    asked = load_workload(args.workload).requests(
        args.prompts, SamplingParams(max_tokens=args.tokens), max_turns=1
    )
    cases, looping = choose(engine, asked)
    pythons = {"llama.cpp": args.llamacpp_python, "vLLM": args.vllm_python}
    others = {"transformers": transformers_arm(args.target, args.dtype)}
    others |= peer_arms(pythons, args.target, args.draft, args.peer_steps)
    rows = []
    for batch in args.batch:
        arms = [Arm(name, batch, None, generate) for name, generate in others.items()]
        arms.append(Arm("plain", batch, SpecConfig.baseline()))
        arms += [Arm(f"chain {k}", batch, SpecConfig.chain(k)) for k in args.chains]
        measure(engine, arms, cases, args.repetitions)
        rows += summarise(engine, arms, sum(len(case.output) for case in cases))
    report = {
        "arms": rows,
        "tokens": sum(len(case.output) for case in cases),
        "read_bandwidth_gb_s": read_bandwidth() / 1e9,
        "prompts": len(cases),
        "left_out_looping": looping,
        "device": engine.pair.device_facts,
    }
    print(as_text(report))
    if args.markdown:
        args.markdown.write_text(as_markdown(report), encoding="utf-8")
    if args.out:
        args.out.write_text(json.dumps(report, indent=1), encoding="utf-8")


def choose(engine: Engine, asked: Sequence[Request]) -> tuple[list[Case], int]:
    """Plain outputs of the prompts; those that loop or are too short to judge are left out."""
    engine.configure(SpecConfig.baseline(), 1)
    cases, looping = [], 0
    for request in asked:
        (output,), _, _ = run_engine(engine, [request])
        share = repeated_share(output)
        if share is None or share >= REPEATED_4GRAMS:
            looping += share is not None
            continue
        sampling = replace(request.sampling, max_tokens=len(output))
        prompt = engine.pair.codec.prompt_ids(request)
        cases.append(
            Case(request=replace(request, sampling=sampling), prompt=prompt, output=output)
        )
    if not cases:
        raise SystemExit("every output loops or is too short: nothing to measure")
    return cases, looping


def run_engine(
    engine: Engine, requests: Sequence[Request]
) -> tuple[Outputs, float, list[StepTrace]]:
    """Output ids, seconds from submission to the last token, and steps of requests together."""
    steps: list[StepTrace] = []
    outputs: dict[int, tuple[int, ...]] = {}
    begun = time.perf_counter_ns()
    handles = [engine.submit(request) for request in requests]
    with torch.inference_mode():  # once per run, as transformers does
        while not engine.idle:
            for emission in engine.step():
                if emission.trace is not None:
                    steps.append(emission.trace)
                outputs[emission.handle] = emission.output_ids
    spent = (time.perf_counter_ns() - begun) / 1e9
    return [outputs[handle] for handle in handles], spent, steps


def measure(engine: Engine, arms: Sequence[Arm], cases: Sequence[Case], repetitions: int) -> None:
    """Round robin: repetition, group, arm; the arm that goes first rotates. One warm-up round."""
    batch = arms[0].batch
    groups = [cases[at : at + batch] for at in range(0, len(cases), batch)]
    for arm in arms:
        arm.seconds = [[] for _ in groups]
    for repetition in range(-1, repetitions):
        for index, group in enumerate(groups if repetition >= 0 else groups[:1]):
            first = (repetition + index) % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                steps: list[StepTrace] = []
                if arm.generate is not None:
                    outputs, spent = arm.generate(group)
                elif arm.spec is not None:
                    engine.configure(arm.spec, batch)
                    outputs, spent, steps = run_engine(engine, [case.request for case in group])
                if repetition >= 0:
                    arm.seconds[index].append(spent)
                    arm.steps += steps
                    arm.compared += len(group)
                    pairs = zip(outputs, group, strict=True)
                    arm.same += sum(output == case.output for output, case in pairs)


def read_bandwidth() -> float:
    """Bytes per second of one thread that reads 128 MiB, best of several."""
    data = torch.ones(32 * 1024 * 1024)
    best = float("inf")
    for _ in range(8):
        begun = time.perf_counter_ns()
        data.sum()
        best = min(best, time.perf_counter_ns() - begun)
    return data.numel() * 4 / (best / 1e9)


def step_bytes(engine: Engine, spec: SpecConfig) -> int:
    """Weight bytes that one step reads: verify, draft decodes and extend."""
    total = engine.pair.target.read_bytes(spec.num_draft_tokens)
    if spec.is_baseline or engine.pair.draft is None:
        return total
    draft = engine.pair.draft
    decodes = (spec.num_steps - 1) * draft.read_bytes(1)
    return total + decodes + draft.read_bytes(1, extend=True)


def summarise(engine: Engine, arms: Sequence[Arm], tokens: int) -> list[dict[str, Any]]:
    """Tokens per second from the median of each group, ratios, and the parts of a step."""
    speed = {
        arm.name: tokens / sum(statistics.median(times) for times in arm.seconds) for arm in arms
    }
    base: dict[str, float | None] = {name: speed.get(name) for name in REFERENCES}
    base["best peer"] = max(speed[arm.name] for arm in arms if arm.spec is None)
    bandwidth, rows = read_bandwidth(), []
    for arm in arms:
        own = speed[arm.name]
        row: dict[str, Any] = {
            "batch": arm.batch,
            "arm": arm.name,
            "tokens_per_s": own,
            "over": {name: own / speed if speed else None for name, speed in base.items()},
            "same_output": f"{arm.same}/{arm.compared}",
            "seconds": arm.seconds,
        }
        if arm.spec is not None:
            row |= _step_figures(arm, step_bytes(engine, arm.spec), bandwidth)
        rows.append(row)
    return rows


def _step_figures(arm: Arm, weight_bytes: int, bandwidth: float) -> dict[str, Any]:
    parts = ("draft_ns", "extend_ns", "verify_ns", "other_ns")
    figures = {
        name.replace("_ns", "_ms"): statistics.median(getattr(s, name) for s in arm.steps) / 1e6
        for name in parts
    }
    step_ms = statistics.median(s.wall_ns for s in arm.steps) / 1e6
    floor_ms = weight_bytes / bandwidth * 1e3
    return {
        "accept_length": 1 + sum(s.accepted for s in arm.steps) / len(arm.steps),
        "step_ms": step_ms,
        **figures,
        "weights_mb": weight_bytes / 1e6,
        "floor_ms": floor_ms,
        "over_floor": step_ms / floor_ms,
    }


if __name__ == "__main__":
    main()

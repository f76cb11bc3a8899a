"""The engine beside ``transformers`` generate and llama.cpp: python -m benchmarks.engine.

Same weights, prompts and token counts in one run, batch 1, greedy. llama.cpp takes part where
``--llamacpp-python`` names an interpreter that has xllamacpp and gguf. Arms take turns prompt by
prompt, in an order that rotates, so that what else the machine does hits all of them; medians over
repetitions are compared. Outputs that loop are left out before anything is timed. The last table
says where a step's time goes, and how far it is above the time that reading its weights takes.

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

from benchmarks.engine_peers import Case, Generate, llamacpp_arm, transformers_arm
from specbench.config import EngineConfig, SpecConfig
from specbench.demo import DRAFT, TARGET
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.metrics.looping import REPEATED_4GRAMS, repeated_share
from specbench.request import Request, SamplingParams
from specbench.trace import StepTrace
from specbench.workload import load_workload

TRANSFORMERS = "transformers"
LLAMACPP = "llama.cpp"


@dataclass(slots=True)
class Arm:
    """One way of generating, what it took per prompt and repetition, and its steps."""

    name: str
    spec: SpecConfig | None
    generate: Generate | None = None
    seconds: list[list[float]] = field(default_factory=list)
    steps: list[StepTrace] = field(default_factory=list)
    same: int = 0


def main() -> None:
    """Parse, run, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--draft", type=Path, default=DRAFT)
    parser.add_argument("--workload", default="default")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--chains", type=int, nargs="*", default=[1, 2, 3, 4, 5, 6, 7])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--capture-ids", type=lambda s: tuple(map(int, s.split(","))))
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--llamacpp-python", type=Path, help="interpreter with xllamacpp and gguf")
    parser.add_argument("--out", type=Path, help="write everything measured as JSON")
    args = parser.parse_args()
    config = EngineConfig(
        device="cpu", dtype=args.dtype, threads=args.threads, max_batch_size=1, kernels=args.kernels
    )
    engine = Engine(ModelPair.load(args.target, args.draft, config, args.capture_ids), config)
    asked = load_workload(args.workload).requests(
        args.prompts, SamplingParams(max_tokens=args.tokens), max_turns=1
    )
    cases, looping = choose(engine, asked)
    arms = [Arm(TRANSFORMERS, None, transformers_arm(args.target, args.dtype))]
    if args.llamacpp_python:
        arms.append(Arm(LLAMACPP, None, llamacpp_arm(args.llamacpp_python, args.target)))
    arms.append(Arm("plain", SpecConfig.baseline()))
    arms += [Arm(f"chain {k}", SpecConfig.chain(k)) for k in args.chains]
    measure(engine, arms, cases, args.repetitions)
    report = summarise(engine, arms, cases)
    report |= {
        "prompts": len(cases),
        "left_out_looping": looping,
        "device": engine.pair.device_facts,
    }
    print_tables(report)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1))


def choose(engine: Engine, asked: Sequence[Request]) -> tuple[list[Case], int]:
    """Plain outputs of the prompts; those that loop or are too short to judge are left out."""
    engine.configure(SpecConfig.baseline(), 1)
    cases, looping = [], 0
    for request in asked:
        output, _, _ = run_engine(engine, request)
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


def run_engine(engine: Engine, request: Request) -> tuple[tuple[int, ...], float, list[StepTrace]]:
    """Output ids, seconds from submission to the last token, and steps of one request."""
    steps: list[StepTrace] = []
    output: tuple[int, ...] = ()
    begun = time.perf_counter_ns()
    engine.submit(request)
    with torch.inference_mode():  # once per request, as transformers does
        while not engine.idle:
            for emission in engine.step():
                if emission.trace is not None:
                    steps.append(emission.trace)
                output = emission.output_ids
    return output, (time.perf_counter_ns() - begun) / 1e9, steps


def measure(
    engine: Engine,
    arms: Sequence[Arm],
    cases: Sequence[Case],
    repetitions: int,
) -> None:
    """Round robin: repetition, prompt, arm; the arm that goes first rotates. One warm-up round."""
    for arm in arms:
        arm.seconds = [[] for _ in cases]
    for repetition in range(-1, repetitions):
        for index, case in enumerate(cases if repetition >= 0 else cases[:1]):
            first = (repetition + index) % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                steps: list[StepTrace] = []
                if arm.generate is not None:
                    output, spent = arm.generate(case)
                elif arm.spec is not None:
                    engine.configure(arm.spec, 1)
                    output, spent, steps = run_engine(engine, case.request)
                if repetition >= 0:
                    arm.seconds[index].append(spent)
                    arm.steps += steps
                    arm.same += output == case.output


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


def summarise(engine: Engine, arms: Sequence[Arm], cases: Sequence[Case]) -> dict[str, Any]:
    """Tokens per second from the median of each prompt, ratios, and the parts of a step."""
    tokens = sum(len(case.output) for case in cases)
    speed = {
        arm.name: tokens / sum(statistics.median(times) for times in arm.seconds) for arm in arms
    }
    bandwidth, rows = read_bandwidth(), []
    for arm in arms:
        row: dict[str, Any] = {
            "arm": arm.name,
            "tokens_per_s": speed[arm.name],
            "over_transformers": speed[arm.name] / speed[TRANSFORMERS],
            "over_llamacpp": speed[arm.name] / speed[LLAMACPP] if LLAMACPP in speed else None,
            "over_plain": speed[arm.name] / speed["plain"],
            "same_output": f"{arm.same}/{sum(map(len, arm.seconds))}",
            "seconds": arm.seconds,
        }
        if arm.spec is not None:
            row |= _step_figures(arm, step_bytes(engine, arm.spec), bandwidth)
        rows.append(row)
    return {"arms": rows, "tokens": tokens, "read_bandwidth_gb_s": bandwidth / 1e9}


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


def print_tables(report: dict[str, Any]) -> None:
    """Speeds, then the parts of a step."""
    facts = report["device"]
    print(
        f"{report['prompts']} prompts, {report['tokens']} tokens a pass, "
        f"{report['left_out_looping']} looping left out; {facts['dtype']}, weights "
        f"{facts['weights']}, {facts['threads']} thread(s), torch {facts['torch']}, "
        f"kernels {facts['kernels']}"
    )
    columns = ("x transformers", "x llama.cpp", "x plain", "same output")
    print(f"{'arm':<14}{'tok/s':>8}" + "".join(f"{c:>16}" for c in columns))
    for row in report["arms"]:
        over = row["over_llamacpp"]
        print(
            f"{row['arm']:<14}{row['tokens_per_s']:>8.0f}{row['over_transformers']:>16.2f}"
            f"{'absent' if over is None else f'{over:.2f}':>16}"
            f"{row['over_plain']:>16.2f}{row['same_output']:>16}"
        )
    print(f"\nmedian step; weights are read at {report['read_bandwidth_gb_s']:.1f} GB/s")
    parts = (
        "step_ms",
        "draft_ms",
        "verify_ms",
        "extend_ms",
        "other_ms",
        "weights_mb",
        "floor_ms",
    )
    print(f"{'arm':<14}{'tau':>6}" + "".join(f"{c:>12}" for c in parts) + f"{'x floor':>9}")
    for row in report["arms"]:
        if "step_ms" in row:
            cells = "".join(f"{row[c]:>12.2f}" for c in parts)
            print(f"{row['arm']:<14}{row['accept_length']:>6.2f}{cells}{row['over_floor']:>9.2f}")


if __name__ == "__main__":
    main()

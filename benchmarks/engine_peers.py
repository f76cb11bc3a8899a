"""What benchmarks/engine.py compares the engine with: one function per peer that runs cases."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specbench.request import Request

Outputs = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prompt, the tokens that plain decoding gives it, and their number."""

    request: Request
    prompt: tuple[int, ...]
    output: tuple[int, ...]


Generate = Callable[[Sequence[Case]], tuple[Outputs, float]]


def transformers_arm(target: Path, dtype: str) -> Generate:
    """A function that generates cases together with transformers and says how long it took.

    Prompts are padded on the left; all run until the longest output is complete.
    """
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=getattr(torch, dtype))
    model.eval()

    def generate(cases: Sequence[Case]) -> tuple[Outputs, float]:
        width = max(len(case.prompt) for case in cases)
        rows = [[0] * (width - len(case.prompt)) + list(case.prompt) for case in cases]
        ids, longest = torch.tensor(rows), max(len(case.output) for case in cases)
        mask = torch.ones_like(ids)
        for row, case in zip(mask, cases, strict=True):
            row[: width - len(case.prompt)] = 0
        begun = time.perf_counter_ns()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=longest,
                do_sample=False,
            )
        spent = (time.perf_counter_ns() - begun) / 1e9
        made = out[:, width:].tolist()
        return [tuple(m[: len(c.output)]) for m, c in zip(made, cases, strict=True)], spent

    return generate


def process_arm(python: Path, script: str, *arguments: object) -> Generate:
    """A function that lets a peer, in a process of its own, generate cases together.

    Raises:
        SystemExit: the peer did not start.
    """
    worker = subprocess.Popen(
        [python, Path(__file__).with_name(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    into, out = worker.stdin, worker.stdout
    if not out.readline():
        raise SystemExit(f"{script} did not start under {python}: run it by hand to see why")

    def generate(cases: Sequence[Case]) -> tuple[Outputs, float]:
        asked = [{"prompt": case.prompt, "tokens": len(case.output)} for case in cases]
        into.write(json.dumps({"cases": asked}) + "\n")
        into.flush()
        answer = json.loads(out.readline())
        return [tuple(ids) for ids in answer["ids"]], answer["seconds"]

    return generate


def peer_arms(
    pythons: dict[str, Path | None], target: Path, draft: Path, steps: int
) -> dict[str, Generate]:
    """Plain and EAGLE-3 arms of the peers whose interpreter is given, by name."""
    scripts = {"llama.cpp": "peer_llamacpp.py", "vLLM": "peer_vllm.py"}
    arms: dict[str, Generate] = {}
    for name, python in pythons.items():
        if python is not None:
            arms[name] = process_arm(python, scripts[name], target)
            arms[f"{name} EAGLE-3"] = process_arm(python, scripts[name], target, draft, steps)
    return arms

"""What benchmarks/engine.py compares the engine with: one function per peer that runs a case."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specbench.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prompt, the tokens that plain decoding gives it, and their number."""

    request: Request
    prompt: tuple[int, ...]
    output: tuple[int, ...]


Generate = Callable[[Case], tuple[tuple[int, ...], float]]


def transformers_arm(target: Path, dtype: str) -> Generate:
    """A function that generates a case with transformers and says how long it took."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=getattr(torch, dtype))
    model.eval()

    def generate(case: Case) -> tuple[tuple[int, ...], float]:
        ids = torch.tensor([case.prompt])
        begun = time.perf_counter_ns()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=len(case.output),
                do_sample=False,
            )
        spent = (time.perf_counter_ns() - begun) / 1e9
        return tuple(out[0, len(case.prompt) :].tolist()), spent

    return generate


def llamacpp_arm(python: Path, target: Path) -> Generate:
    """A function that lets llama.cpp's server, in a process of its own, generate a case."""
    worker = subprocess.Popen(
        [python, Path(__file__).with_name("peer_llamacpp.py"), target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def generate(case: Case) -> tuple[tuple[int, ...], float]:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps({"prompt": case.prompt, "tokens": len(case.output)}) + "\n")
        worker.stdin.flush()
        answer = json.loads(worker.stdout.readline())
        return tuple(answer["ids"]), answer["seconds"]

    return generate

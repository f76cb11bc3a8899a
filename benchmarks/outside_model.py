"""Does the engine say what transformers says, token for token, on a model made elsewhere?

Usage: ``python -m benchmarks.outside_model [--target DIR] [--prompts 20] [--tokens 64]``

Prompts of a shipped workload go through the chat template of both libraries; each answers greedily
in float32 and is not stopped by an end token. ``DIR`` defaults to SPECBENCH_SMOLLM2, a folder that
``tools/convert_gguf.py`` made (docs/outside-model.md). One line for each forward (torch, compiled):
how many answers are equal, then each first difference with the relative gap of the target's two
best scores there: (first - second) / max(|first|, 1). Ends with 1 when an answer differs where the
gap is 1e-5 or more, or when a prompt is encoded differently. Needs transformers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.engine.probe_text import outputs_of
from specbench.errors import ConfigError
from specbench.request import Request, SamplingParams
from specbench.workload import load_workload

FOLDER = "SPECBENCH_SMOLLM2"
EXCUSED = 1e-5
Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where an answer first differs: ours and theirs, and the gap of the two best scores."""

    request_id: str
    place: int
    ours: int
    theirs: int
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Answers of one forward against transformers'."""

    kernels: str
    total: int
    differences: tuple[Difference, ...]
    seconds: float

    @property
    def unexcused(self) -> int:
        """Differences where the scores were not as good as equal."""
        return sum(found.gap >= EXCUSED for found in self.differences)


class Reference:
    """The model and tokenizer of a folder as transformers loads them, in float32."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self._model.generation_config.eos_token_id = None  # else generate falls back to it
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def prompt_ids(self, request: Request) -> Ids:
        """The messages through its chat template."""
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    @torch.inference_mode()
    def answer(self, prompt: Ids, tokens: int) -> Ids:
        """``tokens`` new tokens, greedily, whatever they are."""
        ids = torch.tensor([prompt])
        found = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            pad_token_id=0,
        )
        return tuple(found[0, len(prompt) :].tolist())

    @torch.inference_mode()
    def gap(self, tokens: Ids) -> float:
        """Relative gap of the two best scores after ``tokens``."""
        logits = self._model(torch.tensor([tokens])).logits[0, -1]
        first, second = logits.double().topk(2)[0].tolist()
        return float((first - second) / max(abs(first), 1.0))


def engine_answers(folder: Path, requests: Sequence[Request], kernels: str) -> list[Ids]:
    """The engine's greedy answers by one forward, up to four together.

    Raises:
        ConfigError: that forward cannot run here.
    """
    config = EngineConfig(dtype="float32", kernels=kernels)
    pair = ModelPair.load(folder, None, config)
    engine = Engine(pair, config)
    engine.configure(SpecConfig.baseline(), config.max_batch_size)
    return outputs_of(engine, requests)


def compare(
    kernels: str,
    requests: Sequence[Request],
    ours: Sequence[Ids],
    theirs: Sequence[Ids],
    reference: Reference,
    seconds: float,
) -> Compared:
    """First differences of answers of one length."""
    found = []
    for request, mine, other in zip(requests, ours, theirs, strict=True):
        if mine == other:
            continue
        pairs = zip(mine, other, strict=True)
        place = next(i for i, (a, b) in enumerate(pairs) if a != b)
        gap = reference.gap((*reference.prompt_ids(request), *other[:place]))
        found.append(
            Difference(
                request_id=request.request_id,
                place=place,
                ours=mine[place],
                theirs=other[place],
                gap=gap,
            )
        )
    return Compared(kernels=kernels, total=len(requests), differences=tuple(found), seconds=seconds)


def encoded_alike(folder: Path, requests: Sequence[Request], reference: Reference) -> int:
    """How many prompts have the same ids in both libraries."""
    from specbench.engine.text import TextCodec

    codec = TextCodec(folder)
    return sum(codec.prompt_ids(r) == reference.prompt_ids(r) for r in requests)


def greedy_requests(workload: str, count: int, tokens: int) -> list[Request]:
    """Greedy requests of a workload, its categories in turn, that no end token stops."""
    sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
    found = load_workload(workload).requests(count, sampling)
    return [replace(r, sampling=replace(r.sampling, max_tokens=tokens)) for r in found]


def run(folder: Path, workload: str, count: int, tokens: int) -> int:
    """Print the comparison; 0 when every answer is transformers', or as good as."""
    torch.set_num_threads(1)
    requests, reference = greedy_requests(workload, count, tokens), Reference(folder)
    alike = encoded_alike(folder, requests, reference)
    print(f"prompts: {alike} of {len(requests)} have the same tokens", flush=True)
    begin = time.perf_counter()
    theirs = [reference.answer(reference.prompt_ids(r), tokens) for r in requests]
    spent = time.perf_counter() - begin
    print(f"transformers: {len(theirs)} answers of {tokens} tokens, {spent:.0f} s", flush=True)
    wrong = len(requests) - alike
    for kernels in ("torch", "native"):
        begin = time.perf_counter()
        try:
            ours = engine_answers(folder, requests, kernels)
        except ConfigError as error:
            print(f"{kernels}: not here: {error}")
            continue
        seconds = time.perf_counter() - begin
        done = compare(kernels, requests, ours, theirs, reference, seconds)
        wrong += done.unexcused
        equal = done.total - len(done.differences)
        print(f"{kernels}: {equal} of {done.total} equal, {seconds:.0f} s", flush=True)
        for one in done.differences:
            print(
                f"  {one.request_id}: token {one.place} is {one.ours}, transformers has "
                f"{one.theirs}; gap {one.gap:.1e}"
            )
    return 1 if wrong else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parse.add_argument("--target", default=os.environ.get(FOLDER, ""), metavar="DIR")
    parse.add_argument("--workload", default="default", metavar="NAME")
    parse.add_argument("--prompts", type=int, default=20, metavar="N")
    parse.add_argument("--tokens", type=int, default=64, metavar="N", help="new tokens each")
    args = parse.parse_args(argv)
    if not args.target:
        parse.error(f"name the folder with --target or in {FOLDER} (docs/outside-model.md)")
    return run(Path(args.target), args.workload, args.prompts, args.tokens)


if __name__ == "__main__":
    sys.exit(main())

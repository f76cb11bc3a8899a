"""Does sampling with drafts draw the same tokens as plain sampling? Two samples per prompt.

Usage: ``python -m benchmarks.losslessness_sampled --out FILE.jsonl [--seconds 120]``

Each rule of verification answers every prompt under ``--seeds`` seeds, and plain decoding does so
under as many others. The joint of the first ``--tokens`` output tokens is held against plain
decoding's by Pearson's test of homogeneity; sequences seen under 10 times in both together are one
cell. The first lines are plain decoding against itself, the last a rule that is lossy by its
settings: what the test shows when there is nothing and when there is something to see.
A small top-k keeps the number of sequences small beside the number of draws: with the whole
vocabulary hardly two outputs would be equal, and the test would see nothing.
``excess`` is the distance (total variation) less what two samples of one distribution would show.

Every sample (a rule and a prompt) is a line of FILE once it is drawn; the same command goes on with
the next one, prompt by prompt, and compares the prompts that are whole. ``--seconds`` ends a
command after the sample that passes it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.demo import DRAFT, TARGET
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.request import Request, SamplingParams
from specbench.verification import Verification, VerifyRules

Outputs = list[tuple[int, ...]]
Point = tuple[SpecConfig, VerifyRules]
PROMPTS = ("The", "She said", "of the", "It was a", "1, 2,", "My favourite")
LEAST = 10  # in both samples together: at least 5 expected in each
ALPHA = 0.001  # for all lossless comparisons together (Bonferroni)
CHAIN, TREE = SpecConfig.chain(3), SpecConfig(num_steps=3, topk=4, num_draft_tokens=8)
PLAIN, AGAIN = "plain", "plain again"
ARMS: dict[str, Point] = {
    "target_only k3": (CHAIN, VerifyRules()),
    "target_only tree": (TREE, VerifyRules()),
    "rejection k3": (CHAIN, VerifyRules(method=Verification.REJECTION)),
    "one_hot k3": (CHAIN, VerifyRules(method=Verification.ONE_HOT)),
    "block k3": (CHAIN, VerifyRules(method=Verification.BLOCK)),
    "LOSSY threshold_acc=0.25": (TREE, VerifyRules(threshold_acc=0.25)),
}
_BASELINE: Point = (SpecConfig.baseline(), VerifyRules())
SAMPLES: dict[str, Point] = {PLAIN: _BASELINE, AGAIN: _BASELINE, **ARMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``p`` of the test over ``cells`` sequences, and the distance of the two samples."""

    p: float
    cells: int
    distance: float
    expected: float

    @property
    def excess(self) -> float:
        """Distance beyond what chance gives."""
        return self.distance - self.expected


def main() -> int:
    """Draw what is missing while the time lasts, and compare what is there."""
    args = _parser().parse_args()
    settings = {
        name: getattr(args, name) for name in ("seeds", "tokens", "top_k", "temperature", "prompts")
    }
    known = read_samples(args.out, settings)
    every = [(name, prompt) for prompt in args.prompts for name in SAMPLES]
    missing = [key for key in every if key not in known]
    if not args.out.exists():
        args.out.write_text(json.dumps({"settings": settings}) + "\n")
    for key, outputs in _drawn(missing, args):
        known[key] = outputs
        line = {"sample": key[0], "prompt": key[1], "outputs": [list(o) for o in outputs]}
        with args.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"drawn: {key[0]}, {key[1]!r}; {len(every) - len(known)} samples left", flush=True)
    whole = [prompt for prompt in args.prompts if all((name, prompt) in known for name in SAMPLES)]
    code = _report(known, whole) if whole else 0
    if len(known) < len(every):
        print(f"{len(every) - len(known)} samples are missing: run the same command to go on.")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=3)
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--prompts", nargs="+", default=list(PROMPTS))
    return parser


def read_samples(path: Path, settings: Mapping[str, Any]) -> dict[tuple[str, str], Outputs]:
    """Samples drawn earlier, by (name, prompt). A last line that was cut off is not there.

    Raises:
        SystemExit: they were drawn under other settings.
    """
    if not path.exists():
        return {}
    whole = path.read_text()
    kept = whole[: whole.rfind("\n") + 1]
    if kept != whole:
        path.write_text(kept)
    first, *lines = map(json.loads, kept.splitlines())
    if first["settings"] != settings:
        raise SystemExit(f"{path} was drawn with {first['settings']}, asked: {settings}.")
    return {(at["sample"], at["prompt"]): [tuple(o) for o in at["outputs"]] for at in lines}


def _drawn(
    missing: Sequence[tuple[str, str]], args: argparse.Namespace
) -> Iterator[tuple[tuple[str, str], Outputs]]:
    if not missing:
        return
    pair, begun = load_pair(), time.perf_counter()
    sampling = SamplingParams(
        temperature=args.temperature, top_k=args.top_k, max_tokens=args.tokens, ignore_eos=True
    )
    names = list(SAMPLES)
    for name, prompt in missing:
        if time.perf_counter() - begun > args.seconds:
            return
        asked = Request(request_id=prompt, prompt=prompt, sampling=sampling)
        first = names.index(name) * args.seeds  # no seed is used twice
        yield (name, prompt), draws(pair, SAMPLES[name], asked, args.seeds, first, args.batch_size)


def load_pair() -> ModelPair:
    """The shipped pair."""
    return ModelPair.load(TARGET, DRAFT, EngineConfig())


def draws(
    pair: ModelPair, point: Point, asked: Request, seeds: int, first: int, batch_size: int = 8
) -> Outputs:
    """Outputs for a request under ``seeds`` seeds from ``first`` on, at a point of speculation."""
    spec, rules = point
    config = EngineConfig(
        max_batch_size=batch_size,
        prefix_reuse=True,
        verification=rules.method,
        threshold_single=rules.threshold_single,
        threshold_acc=rules.threshold_acc,
    )
    engine = Engine(pair, config)
    engine.configure(spec, batch_size)
    found: Outputs = []
    with torch.inference_mode():
        for seed in range(first, first + seeds):
            engine.submit(_seeded(asked, seed))
        while not engine.idle:
            found += [e.output_ids for e in engine.step() if e.finish is not None]
    assert len(found) == seeds
    return found


def _seeded(request: Request, seed: int) -> Request:
    return replace(
        request,
        request_id=f"{request.request_id}/{seed}",
        sampling=replace(request.sampling, seed=seed),
    )


def compare(first: Sequence[tuple[int, ...]], second: Sequence[tuple[int, ...]]) -> Comparison:
    """Were two samples of sequences, of the same size, drawn from one distribution?

    With x and y the counts of a cell, the statistic is the sum of (x - y)^2 / (x + y), chi-square
    with one degree of freedom less than there are cells. By chance |x - y| is about
    sqrt(2 (x + y) / pi) in each.

    >>> compare([(1,), (2,)] * 20, [(2,), (1,)] * 20).p
    1.0
    """
    one, two = Counter(first), Counter(second)
    pairs = [(one[key], two[key]) for key in one | two]
    common = [(x, y) for x, y in pairs if x + y >= LEAST]
    rare = (len(first) - sum(x for x, _ in common), len(second) - sum(y for _, y in common))
    cells = [*common, rare] if sum(rare) else common
    statistic = sum((x - y) ** 2 / (x + y) for x, y in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    p = torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64))
    whole = len(first) + len(second)
    return Comparison(
        p=float(p) if len(cells) > 1 else 1.0,
        cells=len(cells),
        distance=sum(abs(x - y) for x, y in cells) / whole,
        expected=sum(math.sqrt(2 * (x + y) / math.pi) for x, y in cells) / whole,
    )


def _report(samples: Mapping[tuple[str, str], Outputs], prompts: Sequence[str]) -> int:
    """A line per sample and prompt, and the verdict; 1 when a lossless rule differs."""
    least, tests, seen = 1.0, 0, 1.0
    for name in list(SAMPLES)[1:]:
        for prompt in prompts:
            one = compare(samples[PLAIN, prompt], samples[name, prompt])
            line = f"cells {one.cells:4}  p {one.p:.2e}  excess {one.excess:+.4f}"
            print(f"{name:24} {prompt:14} {line}")
            if name.startswith("LOSSY"):
                seen = min(seen, one.p)
            elif name != AGAIN:
                least, tests = min(least, one.p), tests + 1
    bound = ALPHA / tests
    print(f"Smallest p of {tests} lossless comparisons: {least:.2e} (lossy below {bound:.1e});")
    print(f"of the lossy rule: {seen:.1e}.")
    return int(least < bound)


if __name__ == "__main__":
    raise SystemExit(main())

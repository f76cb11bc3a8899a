"""Does sampling with drafts draw the same tokens as plain sampling? Two samples per prompt.

Usage: ``python -m benchmarks.losslessness_sampled [--seeds 2000] [--tokens 3] [--top-k 4]``

Each rule of verification answers every prompt under ``--seeds`` seeds, and plain decoding does so
under as many others. The joint of the first ``--tokens`` output tokens is held against plain
decoding's by Pearson's test of homogeneity; sequences seen under 10 times in both together are one
cell. The first lines are plain decoding against itself, the last a rule that is lossy by its
settings: what the test shows when there is nothing and when there is something to see.
A small top-k keeps the number of sequences small beside the number of draws: with the whole
vocabulary hardly two outputs would be equal, and the test would see nothing.
``excess`` is the distance (total variation) less what two samples of one distribution would show.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.demo import DRAFT, TARGET
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.request import Request, SamplingParams
from specbench.verification import Verification, VerifyRules

Outputs = list[tuple[int, ...]]
PROMPTS = ("The", "She said", "of the", "It was a", "1, 2,", "My favourite")
LEAST = 10  # in both samples together: at least 5 expected in each
CHAIN, TREE = SpecConfig.chain(3), SpecConfig(num_steps=3, topk=4, num_draft_tokens=8)
ARMS = {
    "target_only k3": (CHAIN, VerifyRules()),
    "target_only tree": (TREE, VerifyRules()),
    "rejection k3": (CHAIN, VerifyRules(method=Verification.REJECTION)),
    "one_hot k3": (CHAIN, VerifyRules(method=Verification.ONE_HOT)),
    "block k3": (CHAIN, VerifyRules(method=Verification.BLOCK)),
    "LOSSY threshold_acc=0.25": (TREE, VerifyRules(threshold_acc=0.25)),
}


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


def main() -> None:
    """Draw, compare and print a line per arm and prompt."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=3)
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    sampling = SamplingParams(
        temperature=args.temperature, top_k=args.top_k, max_tokens=args.tokens, ignore_eos=True
    )
    asked = [Request(request_id=text, prompt=text, sampling=sampling) for text in PROMPTS]
    plain, again = (
        draws(SpecConfig.baseline(), VerifyRules(), asked, args.seeds, first, args.batch_size)
        for first in (0, args.seeds)
    )
    _show("plain again", compare_all(plain, again))
    for number, (name, (spec, rules)) in enumerate(ARMS.items(), 2):
        first = number * args.seeds
        found = draws(spec, rules, asked, args.seeds, first, args.batch_size)
        _show(name, compare_all(plain, found))


def draws(
    spec: SpecConfig,
    rules: VerifyRules,
    asked: Sequence[Request],
    seeds: int,
    first: int,
    batch_size: int = 8,
) -> dict[str, Outputs]:
    """Outputs of the shipped pair for each request under ``seeds`` seeds from ``first`` on."""
    config = EngineConfig(
        max_batch_size=batch_size,
        prefix_reuse=True,
        verification=rules.method,
        threshold_single=rules.threshold_single,
        threshold_acc=rules.threshold_acc,
    )
    engine = Engine(ModelPair.load(TARGET, DRAFT, config), config)
    engine.configure(spec, batch_size)
    outputs: dict[str, Outputs] = {}
    with torch.inference_mode():
        for request in asked:
            names = {engine.submit(_seeded(request, first + n)) for n in range(seeds)}
            found = outputs[request.request_id] = []
            while not engine.idle:
                found += [e.output_ids for e in engine.step() if e.finish is not None]
            assert len(found) == len(names)
    return outputs


def _seeded(request: Request, seed: int) -> Request:
    return replace(
        request,
        request_id=f"{request.request_id}/{seed}",
        sampling=replace(request.sampling, seed=seed),
    )


def compare_all(
    plain: Mapping[str, Outputs], other: Mapping[str, Outputs]
) -> dict[str, Comparison]:
    """The comparison of each prompt."""
    return {name: compare(outputs, other[name]) for name, outputs in plain.items()}


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


def _show(name: str, found: Mapping[str, Comparison]) -> None:
    for prompt, one in found.items():
        print(
            f"{name:24} {prompt:14} cells {one.cells:4}  p {one.p:.2e}  excess {one.excess:+.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

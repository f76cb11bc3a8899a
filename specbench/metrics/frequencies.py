"""Do two arms sample from the same distribution? A paired permutation test of token frequencies.

Sampled outputs differ by design, so their tokens are counted instead: the statistic is the
chi-square distance of the two arms' pooled token counts, ``sum_v (x_v - y_v)^2 / (x_v + y_v)``.
Tokens of one output hang together, which no table of chi-square allows for; so whole outputs are
exchanged. If both arms draw from the same distribution, either answer to a prompt could have
come from either arm, and the share of random exchanges at least as far apart is an exact p-value
(Good, Permutation Tests, 2nd ed., section 3.2). With the matrix ``G = D diag(1 / total) D'`` of the
per-prompt differences D, an exchange is a vector of signs s and its statistic ``s' G s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.metrics.stats import SEED, FloatArray

EXCHANGES = 4999
MOST_TOKENS = 64
LEAST_PAIRS = 12
MOST_PAIRS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequencyTest:
    """``p`` of the exchange test over ``pairs`` outputs, and the total variation of the pools."""

    pairs: int
    p: float
    distance: float


def compare_frequencies(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, seed: int = SEED
) -> FrequencyTest | None:
    """Test the first 64 tokens of up to 512 paired outputs; None under 12, where it finds nothing.

    Args:
        pairs: token ids that two arms answered to the same prompt.
        seed: of the random exchanges.

    >>> same = [((1, 2, 3), (3, 1, 2))] * 20
    >>> compare_frequencies(same).p
    1.0
    """
    if len(pairs) < LEAST_PAIRS:
        return None
    pairs = pairs[:MOST_PAIRS]
    first, second = (_counts([pair[side] for pair in pairs], pairs) for side in (0, 1))
    difference, total = first - second, (first + second).sum(axis=0)
    gram = (difference / total) @ difference.T
    seen = float(gram.sum())
    generator = np.random.default_rng(seed)
    signs = generator.choice(np.array([-1.0, 1.0]), size=(EXCHANGES, len(pairs)))
    exchanged = np.einsum("ij,ij->i", signs @ gram, signs)
    farther = int((exchanged >= seen - 1e-9 * max(seen, 1.0)).sum())
    x, y = first.sum(axis=0), second.sum(axis=0)
    return FrequencyTest(
        pairs=len(pairs),
        p=(1 + farther) / (1 + EXCHANGES),
        distance=float(np.abs(x / x.sum() - y / y.sum()).sum() / 2),
    )


def _counts(
    outputs: Sequence[Sequence[int]], pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> FloatArray:
    """How often each token that either arm said occurs in each output: (outputs, tokens)."""
    said = sorted({token for pair in pairs for ids in pair for token in ids[:MOST_TOKENS]})
    column = {token: index for index, token in enumerate(said)}
    counts = np.zeros((len(outputs), len(said)))
    for row, ids in enumerate(outputs):
        np.add.at(counts[row], [column[token] for token in ids[:MOST_TOKENS]], 1.0)
    return counts

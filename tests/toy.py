"""Toy language models with exact joint distributions, and verification of many draws at once.

A model is one table per position: ``tables[d]`` [V, ..., V] holds the distribution of token d after
each prefix of d tokens. What a verifier emits is completed to full length from the target, so that
the emitted tokens have the target's joint distribution exactly when the verifier is lossless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.block_verify import verify_blocks
from specbench.engine.rejection import reject_chains
from specbench.engine.sampling import Filters, draw, filtered
from specbench.engine.tree import ancestors
from specbench.engine.tree_sampling import Walks, sample_trees
from specbench.request import SamplingParams
from specbench.verification import VerifyRules

DRAWS = 200_000
EXACT_P = 0.001  # a lossless verifier must stay above
WRONG_P = 1e-9  # a lossy one must fall below
Verifier = Callable[[Tensor, Tensor, Tensor, Tensor], Walks]


@dataclass(frozen=True, slots=True)
class Toy:
    """A model of ``len(tables)`` positions."""

    tables: Sequence[Tensor]

    def after(self, prefix: Tensor) -> Tensor:
        """Distributions [L, V] after the prefixes [L, d]."""
        return self.tables[prefix.shape[1]][tuple(prefix.T)].expand(prefix.shape[0], -1)

    def joint(self, length: int) -> Tensor:
        """Exact probabilities of all sequences of ``length`` tokens, flat."""
        whole = self.tables[0]
        for table in self.tables[1:length]:
            whole = whole[..., None] * table
        return whole.flatten()


@dataclass(frozen=True, slots=True)
class Sample:
    """Sequences [L, K + 1] that begin with what was emitted, and accepted drafts [L]."""

    tokens: Tensor
    accepted: Tensor


def random_toy(vocab: int, length: int, seed: int, sharpness: float = 1.0) -> Toy:
    """Random distributions; a high sharpness makes them nearly certain."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(vocab,) * (depth + 1) for depth in range(length)]
    return Toy(
        [
            torch.softmax(
                sharpness * torch.randn(shape, generator=generator, dtype=torch.float64), -1
            )
            for shape in shapes
        ]
    )


def draft_chains(draft: Toy, steps: int, generator: torch.Generator, *, best: bool) -> Tensor:
    """Chains [DRAWS, K] drawn from the draft, or its best tokens."""
    chains = torch.zeros(DRAWS, 0, dtype=torch.int64)
    for _ in range(steps):
        probs = draft.after(chains)
        token = probs.argmax(-1) if best else draw(probs, coins(generator, 1)[:, 0])
        chains = torch.cat([chains, token[:, None]], 1)
    return chains


def coins(generator: torch.Generator, count: int) -> Tensor:
    """Coins [DRAWS, count]."""
    return torch.rand(DRAWS, count, generator=generator, dtype=torch.float64)


def sample_chains(
    target: Toy, draft: Toy, steps: int, verifier: Verifier, *, best: bool = False, seed: int = 0
) -> Sample:
    """Draft, verify and complete ``DRAWS`` chains of K drafts."""
    generator = torch.Generator().manual_seed(seed)
    drafts = draft_chains(draft, steps, generator, best=best)
    prefixes = [drafts[:, :depth] for depth in range(steps + 1)]
    probs = torch.stack([target.after(prefix) for prefix in prefixes], 1)
    proposed = torch.stack([draft.after(prefix) for prefix in prefixes[:-1]], 1)
    walks = verifier(probs, drafts, proposed, coins(generator, steps + 2))
    tokens = torch.cat([drafts.new_zeros(DRAWS, 1), drafts], 1)
    return completed(target, walks, tokens, torch.arange(steps + 1), generator)


def sample_tree(
    target: Toy, tokens: list[int], parents: list[int], rules: VerifyRules, *, seed: int = 0
) -> Sample:
    """Verify and complete ``DRAWS`` times the same tree."""
    generator = torch.Generator().manual_seed(seed)
    paths: list[list[int]] = [[]]
    for node in range(1, len(tokens)):
        paths.append([*paths[parents[node]], tokens[node]])
    rows = [target.after(torch.tensor([path], dtype=torch.int64))[0] for path in paths]
    probs = torch.stack(rows).expand(DRAWS, -1, -1).contiguous()
    above, flat = torch.tensor([parents]), torch.tensor([tokens]).expand(DRAWS, -1)
    seen = ancestors(above, len(tokens))
    walks = sample_trees(probs, flat, above, seen, coins(generator, len(tokens) + 1), rules)
    return completed(target, walks, flat, torch.tensor([len(path) for path in paths]), generator)


def completed(
    target: Toy, walks: Walks, tokens: Tensor, depths: Tensor, generator: torch.Generator
) -> Sample:
    """Accepted tokens, then the bonus, then the target's own up to its last position."""
    accepted = walks.kept.long().sum(1) - 1
    said = torch.zeros(DRAWS, 0, dtype=torch.int64)
    for place in range(len(target.tables)):
        on_path = (walks.kept & (depths == place + 1)).long()
        drafted = (tokens * on_path).sum(1)
        fresh = draw(target.after(said), coins(generator, 1)[:, 0])
        late = torch.where(accepted == place, walks.bonus, fresh)
        token = torch.where(accepted > place, drafted, late)
        said = torch.cat([said, token[:, None]], 1)
    return Sample(said, accepted)


def chi_square_p(seen: Tensor, expected: Tensor) -> float:
    """p of Pearson's test of counts against probabilities; cells under 5 expected are pooled.

    A count where the probability is 0 gives p = 0.
    """
    if bool((seen[expected == 0] > 0).any()):
        return 0.0
    mean, counts = expected * seen.sum(), seen.double()
    small = mean < 5
    mean = torch.cat([mean[~small], mean[small].sum()[None]])
    counts = torch.cat([counts[~small], counts[small].sum()[None]])
    cells = mean > 0
    statistic = ((counts - mean)[cells].square() / mean[cells]).sum()
    freedom = int(cells.sum()) - 1
    if freedom == 0:
        return 1.0
    return float(torch.special.gammaincc(torch.tensor(freedom / 2.0).double(), statistic / 2))


def p_of_joint(sample: Sample, target: Toy, length: int) -> float:
    """p that the first ``length`` tokens have the target's joint distribution."""
    vocab = target.tables[0].shape[0]
    cells = torch.zeros(len(sample.tokens), dtype=torch.int64)
    for place in range(length):
        cells = cells * vocab + sample.tokens[:, place]
    return chi_square_p(torch.bincount(cells, minlength=vocab**length), target.joint(length))


def worst_p(sample: Sample, target: Toy) -> float:
    """The smallest p over the joints of the first 1, 2, ... tokens."""
    return min(p_of_joint(sample, target, n) for n in range(1, len(target.tables) + 1))


def by_rejection(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """Rejection sampling with the draft's distribution."""
    return reject_chains(probs, drafts, proposed, tosses)


def by_block(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """Block verification."""
    return verify_blocks(probs, drafts, proposed, tosses)


def by_one_hot(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """Rejection sampling that takes every draft as certain."""
    return reject_chains(probs, drafts, None, tosses)


def by_target(probs: Tensor, drafts: Tensor, proposed: Tensor, tosses: Tensor) -> Walks:
    """Target-only sampling of the chain."""
    nodes = drafts.shape[1] + 1
    tokens = torch.cat([drafts.new_zeros(len(drafts), 1), drafts], 1)
    parents = torch.arange(-1, nodes - 1)[None]
    seen = torch.ones(1, nodes, nodes, dtype=torch.bool).tril()
    return sample_trees(probs, tokens, parents, seen, tosses, VerifyRules())


def filtered_probs(logits: Tensor, sampling: SamplingParams) -> Tensor:
    """Filtered probabilities of rows [R, V] of one request."""
    return filtered(logits[None], Filters.of([sampling], logits))[0]

"""The only place where a token is chosen: check a drafted tree with the target's scores.

A tree of the root alone is plain decoding, and the token after a prompt is chosen here too.
Greedy lanes walk along the argmax (engine-spec 6.1); sampled lanes are decided together, on the
device, by the rule that they ask for: ``tree_sampling``, ``rejection`` or ``block_verify``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.block_verify import verify_blocks
from specbench.engine.rejection import reject_chains
from specbench.engine.sampling import Chooser, Filters, filtered, tossed
from specbench.engine.tree import Tree, links
from specbench.engine.tree_sampling import Walks, sample_trees
from specbench.errors import EngineError
from specbench.verification import Verification, VerifyRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was decided for one lane.

    ``path`` are the node indices kept, the root first; ``tokens`` the accepted drafts and then
    the bonus token; ``ranks`` the rank among its siblings of each accepted node; ``depth`` the
    deepest level that was drafted; ``lost`` the best-ranked drafts below the last kept node.
    ``finite`` is False when the scores held NaN or infinity, and then nothing else counts.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ranks: tuple[int, ...]
    depth: int
    finite: bool = True
    lost: tuple[int, ...] = ()

    @property
    def accepted(self) -> int:
        """Drafts kept, the bonus not counted."""
        return len(self.path) - 1


_BROKEN = Verdict(path=(0,), tokens=(), ranks=(), depth=0, finite=False)


def verify(
    logits: Tensor, tree: Tree, choosers: Sequence[Chooser], known: Sequence[int] | None = None
) -> list[Verdict]:
    """Choose the tokens of every lane.

    Args:
        logits: target scores [B·N, V] of the nodes, lanes after one another.
        tree: the drafted nodes of B lanes.
        choosers: one per lane.
        known: the best token of each row where the forward has told it, -1 for scores that are
            not finite.

    Returns:
        One verdict per lane, in order.

    Raises:
        EngineError: the rules need the draft's distribution, and the tree has none.
    """
    nodes = tree.tokens.shape[1]
    if known is None:
        best, finite = best_tokens(logits)
    else:
        best, finite = list(known), [token >= 0 for token in known]
    # the root's own token is never looked at, so a tree without drafts needs no transfer
    drafted = tree.tokens.tolist() if nodes > 1 else [[-1]] * len(choosers)
    shape = None
    if not tree.chain:
        shape = torch.stack([tree.parents, tree.ranks, tree.depths], 1).tolist()
    sound = [all(finite[lane * nodes : (lane + 1) * nodes]) for lane in range(len(choosers))]
    drawn = [i for i, chooser in enumerate(choosers) if sound[i] and not chooser.sampling.greedy]
    sampled, verdicts = _sampled(logits, tree, choosers, drawn) if drawn else {}, []
    for lane, whole in enumerate(sound):
        if not whole:
            verdicts.append(_BROKEN)
            continue
        first, sibling, ranks, depth = _links(shape and shape[lane], nodes)
        rows = best[lane * nodes : (lane + 1) * nodes]
        found = sampled.get(lane)
        path, bonus = found or greedy_walk(drafted[lane], first, sibling, rows)
        tokens, kept = drafted[lane], path[1:]
        verdicts.append(
            Verdict(
                path=tuple(path),
                tokens=(*(tokens[node] for node in kept), bonus),
                ranks=tuple(ranks[node] for node in kept),
                depth=depth,
                lost=_lost(tokens, first, path[-1]),
            )
        )
    return verdicts


def _lost(tokens: Sequence[int], first: Sequence[int], node: int) -> tuple[int, ...]:
    """The drafts of first rank below ``node``, level by level."""
    found = []
    while (node := first[node]) >= 0:
        found.append(tokens[node])
    return tuple(found)


def best_tokens(logits: Tensor) -> tuple[list[int], list[bool]]:
    """Argmax of each row, ties to the lowest id, and whether the row is free of NaN and infinity.

    One sum finds values that are not finite; only then is each row looked at. Every separate
    operation outside the layers costs tens of microseconds on a CPU whose caches the weights have
    just flushed, so there are two.
    """
    best = logits.argmax(-1)
    if logits.device.type == "cpu":
        ids, total = best.tolist(), logits.sum(dtype=_wide(logits)).item()
    else:
        summed = logits.sum(dtype=torch.float64)  # widened as it is read, not in a copy
        *exact, total = torch.cat([best.double(), summed[None]]).tolist()
        ids = [int(i) for i in exact]
    if math.isfinite(total):
        return ids, [True] * len(ids)
    return ids, torch.isfinite(logits).all(-1).tolist()


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def greedy_walk(
    tokens: Sequence[int], first: Sequence[int], sibling: Sequence[int], best: Sequence[int]
) -> tuple[list[int], int]:
    """Follow the child that equals the target's argmax as far as there is one (6.1).

    Returns:
        Node indices from the root, and the bonus token.
    """
    path = [0]
    while True:
        node = path[-1]
        child = first[node]
        while child >= 0 and tokens[child] != best[node]:
            child = sibling[child]
        if child < 0:
            return path, best[node]
        path.append(child)


def _sampled(
    logits: Tensor, tree: Tree, choosers: Sequence[Chooser], lanes: Sequence[int]
) -> dict[int, tuple[list[int], int]]:
    """Path and bonus of each of ``lanes``, which sample by rules of their own."""
    groups: dict[VerifyRules, list[int]] = {}
    for lane in lanes:
        groups.setdefault(choosers[lane].rules, []).append(lane)
    found = {}
    for rules, group in groups.items():
        walks = _walks(logits, tree, [choosers[lane] for lane in group], group, rules)
        rows = torch.cat([walks.kept.long(), walks.bonus[:, None]], 1).tolist()
        for lane, (*kept, bonus) in zip(group, rows, strict=True):
            found[lane] = [node for node, on_path in enumerate(kept) if on_path], bonus
    return found


def _walks(
    logits: Tensor,
    tree: Tree,
    choosers: Sequence[Chooser],
    lanes: Sequence[int],
    rules: VerifyRules,
) -> Walks:
    """Decide ``lanes`` on the device, with N + 1 coins each."""
    nodes, device = tree.tokens.shape[1], logits.device
    scores, tokens, parents, seen = (
        logits.view(-1, nodes, logits.shape[-1]),
        tree.tokens,
        tree.parents,
        tree.seen,
    )
    which = torch.tensor(lanes, device=device)
    if len(lanes) < scores.shape[0]:
        scores, tokens = scores[which], tokens[which]
        if not tree.chain:
            parents, seen = parents[which], seen[which]
    probs = filtered(scores, Filters.of([chooser.sampling for chooser in choosers], scores))
    coins = torch.stack([tossed(chooser.coins, nodes + 1) for chooser in choosers]).to(device)
    if rules.method is Verification.TARGET_ONLY or nodes == 1:
        return sample_trees(probs, tokens.to(device), parents, seen, coins, rules)
    drafts = tokens[:, 1:]
    if rules.method is Verification.ONE_HOT:
        return reject_chains(probs, drafts, None, coins)
    if tree.proposal is None:
        raise EngineError(
            f"verification={rules.method.value} needs the distribution that drafts come from.",
            todo="Let the drafter draw them (engine.proposal.DraftSampler).",
        )
    check = verify_blocks if rules.method is Verification.BLOCK else reject_chains
    return check(probs, drafts, tree.proposal.on_target(which, probs.shape[-1]), coins)


def _links(
    shape: list[list[int]] | None, nodes: int
) -> tuple[Sequence[int], Sequence[int], Sequence[int], int]:
    """First children, next siblings, ranks and depth of one tree; of a chain without ``shape``."""
    if shape is None:
        return [*range(1, nodes), -1], [-1] * nodes, [0] * nodes, nodes - 1
    parents, ranks, depths = shape
    return *links(parents), ranks, max(depths)

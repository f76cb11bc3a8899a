"""The tree probe: every node of a tree must be as if its path had been drafted and checked alone.

Two checks. Verify: the target's scores of each node against those that the node gets in the chain
from the root to it. Draft: where a tree and a chain of the same depth were drafted from the same
text, the most likely path must be in the tree, made of the same cache rows (its recurrent state
shows there).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from specbench.config import SpecConfig
from specbench.doctor.parity_compare import Comparison, relative
from specbench.doctor.parity_result import Parity
from specbench.doctor.parity_setup import TREE, Setup
from specbench.doctor.parity_texts import asked
from specbench.doctor.parity_ties import path_probabilities
from specbench.doctor.parity_watch import Runs, Step, Watched, run
from specbench.engine.batch import Batch
from specbench.engine.draft import own_slots
from specbench.engine.drafter import chain_tree
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.runner import Scores, TargetRunner
from specbench.engine.tree import Tree, chain_shape

CUTS = (0, 5, 10, 15)


def probe_tree(runs: Runs) -> Parity:
    """Verify over all steps of all prompts; drafts after fresh prefills, so that what steps leave
    behind (``parity_rows.probe_cache``) does not show here."""
    texts = runs.texts
    same = Comparison(texts.pair)
    engine = runs.build(Setup(spec=TREE, max_len=texts.max_len))
    alone = _Alone(engine, same)
    engine.runner = alone  # type: ignore[assignment]  # what it lacks is passed on
    seen = run(engine, texts.requests(), runs.plain.outputs)
    cuts = [
        asked(f"{name} +{cut}", (*prompt, *seen.outputs[name][:cut]), TREE.num_steps + 3)
        for name, prompt in texts.prompts.items()
        for cut in CUTS
    ]
    trees, chains = (
        runs.run(Setup(spec=spec, max_len=texts.max_len), cuts)
        for spec in (TREE, SpecConfig.chain(TREE.num_steps))
    )
    for request in cuts:
        _drafted(same, trees, chains, request.request_id)
    return same.parity(
        "tree", f"{alone.nodes} nodes of {alone.trees} trees, and {len(cuts)} drafts, each alone"
    )


class _Alone:
    """A runner that first runs each root-to-leaf path of a tree as a chain, then the tree."""

    def __init__(self, engine: Engine, same: Comparison) -> None:
        self._inner, self._engine, self._same = engine.runner, engine, same
        self._runners: dict[int, TargetRunner] = {}
        self.trees = self.nodes = 0

    def verify(self, batch: Batch, tree: Tree) -> Scores:
        made = [(path, self._chain(batch, tree, path)) for path in leaf_paths(tree)]
        scores = self._inner.verify(batch, tree)
        self.trees += 1
        self.nodes += tree.tokens.shape[1] - 1
        for path, logits in made:
            off = relative(scores.logits[path], logits)
            self._note(batch, off)
        return scores

    def _note(self, batch: Batch, off: Tensor) -> None:
        same = self._same
        same.largest = max(same.largest, float(off.max()))
        same.rows += len(off)
        wrong = (off > same.limit).nonzero()
        if len(wrong):
            depth = int(wrong[0, 0])
            same.differ(
                batch.sequences[0].request.request_id,
                batch.sequences[0].verify_steps + 1,
                batch.starts[0] + depth,
                f"target scores of a node at depth {depth} differ from its chain's by "
                f"{float(off[depth]):.2g}",
            )

    def _chain(self, batch: Batch, tree: Tree, path: list[int]) -> Tensor:
        nodes, pair, memory = len(path), self._engine.pair, self._engine.memory
        if nodes not in self._runners:
            self._runners[nodes] = TargetRunner(
                pair.target,
                memory.target,
                memory.target_rope,
                SpecConfig.chain(nodes - 1),
                Graphs(pair.device, GraphMode.EAGER),
            )
        chain = chain_tree(tree.tokens[:, path], chain_shape(nodes, pair.device))
        return self._runners[nodes].verify(batch, chain).logits.clone()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def leaf_paths(tree: Tree) -> list[list[int]]:
    """Node indices from the root to each leaf, of the first lane."""
    parents = tree.parents[0].tolist()
    found = []
    for leaf in set(range(len(parents))) - set(parents):
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        found.append(path[::-1])
    return sorted(found)


def _drafted(same: Comparison, trees: Watched, chains: Watched, name: str) -> None:
    """Compare the first draft of a text as a tree with that as a chain."""
    step, chain = trees.steps[name][0], chains.steps[name][0]
    same.requests.add(name)
    same.steps += 1
    best, paths = chain.paths, set(step.paths)
    held = next((i for i, path in enumerate(best) if path not in paths), len(best))
    before = best[held - 1] if held else ()
    others = sorted(p for p in paths if len(p) == held + 1 and p[:-1] == before)
    if others:  # the node before was grown, and its most likely child is not there
        text = trees.first[name].tokens
        one, other = path_probabilities(same.pair, text, [best[held], others[0]])
        if abs(one - other) <= same.limit * max(one, other):
            same.ties += 1
        else:
            what = "the tree leaves out the most likely node"
            same.differ(name, 1, step.committed + held + 1, what)
    _states(same, step, chain, held, name)


def _states(same: Comparison, step: Step, chain: Step, held: int, name: str) -> None:
    """Cache rows of the most likely path. Its row at depth d was drafted in the tree for sure where
    depth d + 1 is in the tree, and always at depth 1."""
    slots = own_slots(TREE, step.drafted.device)
    for depth in range(1, min(max(held, 2), TREE.num_steps)):
        beam = slots[depth].nonzero()[:, 1]
        mine = step.drafted[:, beam]
        theirs = chain.drafted[:, depth - 1 : depth].expand_as(mine)
        off = relative(mine, theirs).amax(0).min()
        same.largest = max(same.largest, float(off))
        same.rows += 1
        if off > same.limit:
            place = step.committed + depth
            what = f"drafted rows (recurrent state) at depth {depth} differ by {float(off):.2g}"
            same.differ(name, 1, place, what)
            return

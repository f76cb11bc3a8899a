"""Prompts in chunks: what the target and the draft take in before a sequence can decode."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from specbench.engine.batch import Sequence
from specbench.engine.drafter import Drafter
from specbench.engine.runner import TargetRunner
from specbench.engine.tree import Tree
from specbench.engine.verify import Verdict, verify

Check = Callable[[Sequence, Tensor, Verdict | None], None]


def read_chunk(
    runner: TargetRunner,
    drafter: Drafter,
    sequence: Sequence,
    rows: int,
    root: Tree,
    check: Check | None = None,
) -> Verdict | None:
    """Read the next ``rows`` tokens of a prompt into both caches.

    The draft's row at a chunk border takes the next prompt token, not a guess of it (engine-spec
    2.8). Borders depend on the prompt alone, never on what else runs. ``check`` is shown what was
    computed before anything is made of it.

    Returns:
        None while the prompt goes on, else how the first output token was chosen: from the tree
        ``root`` of a single node.
    """
    start, prompt = sequence.committed, sequence.prompt
    tokens = prompt[start : start + rows]
    end = start + len(tokens)
    last, verdict = end == len(prompt), None
    following = list(prompt[start + 1 : end + 1])
    scores = runner.prefill(sequence.lane, start, tokens, last=last)
    if last:
        (verdict,) = verify(scores.logits, root, [sequence.chooser], scores.best)
    if check is not None:
        check(sequence, scores.features, verdict)
    if verdict is not None:
        if not verdict.finite:
            return verdict
        following.append(verdict.tokens[0])
    drafter.prefill(sequence.lane, start, following, scores.features, last=last)
    sequence.committed = sequence.settled = end
    return verdict

"""What a point means: a drawing of what is drafted, kept, verified and emitted."""

from __future__ import annotations

from specbench.config import SpecConfig

MOST_DRAWN = 16


def explain(spec: SpecConfig) -> str:
    """Draw one point, level by level (engine-spec 4.3 and 5).

    >>> print(explain(SpecConfig.chain(2)))
    num_steps=2 topk=1 num_draft_tokens=3 (vLLM: num_speculative_tokens=2)
    <BLANKLINE>
      root    R
      level 1 o
      level 2 o
    <BLANKLINE>
    drafted   2 nodes: 1 on level 1, 1 on level 2
    kept      all 2
    verified  3 rows in one target forward: the root and 2 drafts
    emitted   1 to 3 tokens a step: 0 to 2 accepted drafts and the bonus token
    forwards  per step: 1 verify, 1 draft extend, 1 draft decode of 1 row
    """
    k, b, n = spec.num_steps, spec.topk, spec.num_draft_tokens
    if spec.is_baseline:
        return (
            "num_steps=0: the baseline\n\n  root    R\n\n"
            "drafted   nothing\n"
            "verified  1 row in one target forward: the root\n"
            "emitted   1 token a step\n"
            "forwards  per step: 1 target forward, no draft"
        )
    proposed = [b] + [b * b] * (k - 1)
    pool = sum(proposed)
    chain = f" (vLLM: num_speculative_tokens={k})" if b == 1 else ""
    levels = ", ".join(f"{count} on level {i}" for i, count in enumerate(proposed, start=1))
    kept = f"the {n - 1} most probable of {pool}" if n - 1 < pool else f"all {pool}"
    return "\n".join(
        [
            f"num_steps={k} topk={b} num_draft_tokens={n}{chain}",
            "",
            "  root    R",
            *(_level(i, count, spec) for i, count in enumerate(proposed, start=1)),
            "",
            f"drafted   {_count(pool, 'node')}: {levels}",
            f"kept      {kept}",
            f"verified  {n} rows in one target forward: the root and {_count(n - 1, 'draft')}",
            f"emitted   1 to {_deepest(spec) + 1} tokens a step: 0 to {_deepest(spec)} accepted "
            "drafts and the bonus token",
            f"forwards  per step: 1 verify, 1 draft extend, {_count(k - 1, 'draft decode')}"
            f" of {_count(b, 'row')}",
        ]
    )


def _deepest(spec: SpecConfig) -> int:
    """The deepest level that a kept node can have: N - 1 nodes reach at most that deep."""
    return min(spec.num_steps, spec.num_draft_tokens - 1)


def _level(level: int, count: int, spec: SpecConfig) -> str:
    """One line of the drawing: siblings stand together, at most MOST_DRAWN marks.

    Of level 1 all nodes go on, of the last one none, of those between the ``topk`` best.
    """
    topk = spec.topk
    groups = ["o" * min(topk, MOST_DRAWN)] * max(1, count // topk)
    drawn = " ".join(groups[: max(1, MOST_DRAWN // topk)])
    more = "" if len(drawn.replace(" ", "")) == count else f" … {count} in all"
    goes_on = f"   ({topk} of them go on)" if topk > 1 and 1 < level < spec.num_steps else ""
    return f"  level {level} {drawn}{more}{goes_on}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

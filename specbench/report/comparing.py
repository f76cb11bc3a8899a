"""A comparison of two runs as plain blocks: for the terminal and for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.fingerprint import Difference, Scope
from specbench.metrics.arms import ArmKey
from specbench.metrics.comparison import Change, Compared, Comparison
from specbench.metrics.figures import ALL
from specbench.metrics.stats import Interval
from specbench.report.document import Block, Folded, Heading, Items, Table, Text
from specbench.report.wording import MISSING, estimate, number

COLUMNS = ("arm", "figure", "BASE", "HEAD", "HEAD ÷ BASE", "change")
_BLOCKS = {
    Scope.CHANGE: "the change under test",
    Scope.SPEED: "times are not comparable",
    Scope.ALL: "nothing is comparable",
}


def verdict(comparison: Comparison) -> str:
    """The one line that a reader takes away."""
    share = f"{comparison.margin:.1%}".replace(".0%", "%").replace("%", " %")
    judged = comparison.judged
    counts = {change: sum(row.change is change for row in judged) for change in Change}
    parts = [f"{count} {change.value}" for change, count in counts.items() if count]
    parts = parts or ["nothing in both"]
    if comparison.lost:
        parts.append(f"arms of BASE that HEAD lacks: {len(comparison.lost)}")
    line = f"HEAD against BASE: {comparison.change.value} ({', '.join(parts)}"
    return f"{line}; margin {share})."


def document(comparison: Comparison, base: str, head: str) -> tuple[Block, ...]:
    """The comparison of ``head`` with ``base``, short enough for a pull request."""
    totals = [row for row in comparison.rows if row.category == ALL]
    parts = [row for row in comparison.rows if row.category != ALL]
    blocks: list[Block] = [
        Heading(text="specbench compare", level=2),
        Text(text=verdict(comparison), strong=True),
        Text(text=f"BASE: {base}. HEAD: {head}."),
    ]
    if comparison.differences:
        blocks.append(Items(items=tuple(_difference(one) for one in comparison.differences)))
    if comparison.lossless:
        blocks.append(Items(items=tuple(_fell(*one) for one in comparison.lossless)))
    if totals:
        blocks += [table(totals), Text(text=explanation(comparison))]
    if parts:
        blocks.append(Folded(title="by category (shown, not judged)", inside=table(parts)))
    for name, missing in (("BASE", comparison.only_base), ("HEAD", comparison.only_head)):
        if missing:
            arms = ", ".join(arm(key) for key in missing)
            blocks.append(Text(text=f"Only in {name}, not compared: {arms}."))
    return tuple(blocks)


def explanation(comparison: Comparison) -> str:
    """How the brackets and the verdicts came about."""
    return (
        "Brackets: of BASE and HEAD, each run's own 95 % interval; of HEAD ÷ BASE, one widened so "
        "that all judged figures hold together at 95 %. The ratio is paired by prompt; a speedup "
        "is against the run's own interleaved baseline, and the scatter between blocks is in the "
        "interval of its ratio. Worse or better: the interval of the ratio "
        f"excludes 1 and the figure moved by more than {comparison.margin:.1%}; same: the whole "
        "interval lies within that."
    )


def table(rows: Sequence[Compared]) -> Table:
    """One line per figure."""
    return Table(
        columns=COLUMNS,
        rows=tuple(
            (
                arm(row.key) + ("" if row.category == ALL else f", {row.category}"),
                row.figure,
                estimate(row.base),
                estimate(row.head),
                ratio(row.ratio),
                row.change.value + (f" ({row.reason})" if row.reason else ""),
            )
            for row in rows
        ),
        words=("arm", "figure", "change"),
    )


def arm(key: ArmKey) -> str:
    """The name of an arm: point, workload, batch size, temperature."""
    cell = key.cell
    return f"{key.point_id} {cell.workload} b{cell.batch_size} t{cell.temperature:g}"


def ratio(value: Interval | None) -> str:
    """A ratio to three digits with its interval.

    >>> ratio(Interval(value=1.0, low=0.98, high=1.02, n=20))
    '1.000 [0.980, 1.020]'
    """
    if value is None:
        return MISSING
    if value.low is None or value.high is None:
        return number(value.value, 3)
    return f"{number(value.value, 3)} [{number(value.low, 3)}, {number(value.high, 3)}]"


def _difference(one: Difference) -> tuple[str, str]:
    means = _BLOCKS[one.scope] if one.known or one.scope else "not known to be the same"
    return one.topic, f"{one.base} -> {one.head} ({means})"


def _fell(key: ArmKey, base: str, head: str) -> tuple[str, str]:
    return arm(key), f"was {base}, is {head}: outputs are no longer the target's own"

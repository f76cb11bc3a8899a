"""What other tools would print, and where a run's output tokens came from, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specbench.metrics.account import Cause, TokenAccount
from specbench.metrics.definitions import Value
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.document import Block, Folded, Heading, Table, Text


def ledger(summary: Summary) -> Iterable[Block]:
    """What other tools would print for the best point."""
    rows = summary.ledger
    if not rows:
        return
    yield Heading(text="The same run in other tools' words")
    if text := account_text(summary.account):
        yield Text(text=text)
    yield Folded(
        title="What each tool would print for the best point, and why it differs",
        inside=Table(
            columns=("tool", "figure", "value", "why"),
            rows=tuple((row.tool, row.field, value_text(row.value), row.why) for row in rows),
            words=("tool", "figure", "value", "why"),
        ),
    )


def value_text(value: Value) -> str:
    """A figure of the ledger: a number, numbers by position, or a span over requests."""
    if isinstance(value, Mapping):
        values = sorted(value.values())
        return f"{values[0]:.2f} to {values[-1]:.2f} by request" if values else wording.MISSING
    if isinstance(value, tuple):
        return " ".join(wording.number(share) for share in value)
    return wording.number(value, 3)


def account_text(account: TokenAccount | None) -> str:
    """The token account in one sentence; a residual comes with its names."""
    if account is None:
        return ""
    text = (
        f"Output tokens: {account.completion:,} = {account.prefill:,} of prefill + "
        f"{account.accepted:,} accepted + {account.bonus:,} bonus - {account.trimmed:,} trimmed"
    )
    if account.residual == 0:
        return f"{text}; nothing is left over."
    names = [f"{cause.value} ({count})" for cause, count in account.causes if cause != Cause.NONE]
    return f"{text}, and {account.residual:+,} left over: {', '.join(names)}."

import dataclasses

from specbench.metrics.account import Cause, TokenAccount
from specbench.metrics.definitions import Definition, Value
from specbench.metrics.summary import Summary
from specbench.report.document import Folded, Text
from specbench.report.ledger import account_text, ledger


def test_ledger_values_by_kind(summary: Summary) -> None:
    values: tuple[Value, ...] = (1.5, (0.5, None), {"A": 3.0, "B": 1.0}, None, {})
    rows = tuple(Definition(tool="t", field="f", value=value, why="w") for value in values)
    given = dataclasses.replace(summary, ledger=rows, account=None)
    _, folded = ledger(given)
    assert isinstance(folded, Folded)
    shown = [row[2] for row in folded.inside.rows]
    assert shown == ["1.500", "0.50 –", "1.00 to 3.00 by request", "–", "–"]
    assert list(ledger(dataclasses.replace(given, ledger=()))) == []


def test_the_account_of_the_best_point_adds_up(summary: Summary) -> None:
    _, text, _ = ledger(summary)
    assert isinstance(text, Text)
    assert text.text.endswith("trimmed; nothing is left over.")
    account, best = summary.account, summary.headline.arm
    assert account is not None
    assert best is not None
    assert account.completion == best.total.output_tokens
    assert account.bonus == best.total.verify_steps


def test_what_is_left_over_is_named() -> None:
    account = TokenAccount(
        completion=90,
        prefill=10,
        accepted=50,
        bonus=40,
        trimmed=0,
        residual=-10,
        causes=((Cause.PREFILL, 10),),
    )
    assert account_text(account).endswith(
        "-10 left over: the prefill token is not in the count of output tokens (10)."
    )

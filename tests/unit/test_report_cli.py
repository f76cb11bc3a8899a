"""``specbench report``: flags that would be ignored are refused before a run is read."""

from __future__ import annotations

import pytest

from specbench.cli import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--definitions", "--slo", "ttft=1ms"], "--slo: has no meaning with --definitions"),
        (["--definitions", "k3", "--reader-rate", "9"], "--reader-rate: has no meaning with"),
        (["--slo", "ttft"], "--slo ttft"),
        (["--definitions"], "/nowhere"),
    ],
)
def test_flags_that_cannot_be(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "/nowhere", *words]) == 2
    assert says in capsys.readouterr().err

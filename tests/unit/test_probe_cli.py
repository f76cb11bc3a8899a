"""The command prints the figures of the shipped pair and writes them as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.cli import main
from specbench.engine.probe import ReplySums
from specbench.probe_cli import group_figures


def reply(
    positions: int, hits: int, alive: tuple[int, ...], steps: int, accepted: int
) -> ReplySums:
    return ReplySums(
        request_id="r",
        category="c",
        positions=positions,
        known=(hits,) * len(alive),
        hits=(hits,) * len(alive),
        alive=alive,
        verify_steps=steps,
        accepted=accepted,
    )


def test_figures_pool_sums_and_not_means() -> None:
    found = group_figures([reply(10, 9, (9, 5), 4, 6), reply(30, 0, (0, 0), 30, 0)])
    assert found["accuracy_all"][0]["value"] == pytest.approx(9 / 40)
    assert found["implied_accept_length"]["value"] == pytest.approx(1 + 14 / 40)
    assert found["walk_accept_length"]["value"] == pytest.approx(1 + 6 / 34)
    assert found["walk_accept_length"]["low"] is None  # two requests are too few


def test_nothing_right_is_zero_without_an_interval() -> None:
    found = group_figures([reply(10, 0, (0,), 10, 0)])
    assert found["survival"] == [{"value": 0.0, "low": None, "high": None}]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probe.json"
    flags = ["--requests", "6", "--max-tokens", "12", "--num-steps", "2", "--positions", "60"]
    assert main(["probe", *flags, "--json", str(path)]) == 0
    facts = json.loads(path.read_text())
    shown = capsys.readouterr().out
    assert facts["requests_left_out"] == 1
    assert f"{facts['positions']} positions of 5 requests, 1 left out" in shown
    assert facts["capture_layers"] == [2, 4, 7]
    parts = [group for name, group in facts["groups"].items() if name != "all"]
    assert sum(p["positions"] for p in parts) == facts["groups"]["all"]["positions"]
    assert 1 < facts["groups"]["all"]["walk_accept_length"]["value"] <= 3


def test_zero_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--num-steps", "0"]) != 0
    assert "--num-steps 0" in capsys.readouterr().err

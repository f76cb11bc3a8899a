from __future__ import annotations

from pathlib import Path

import pytest

from specbench import cli
from tests.unit.dashboards.stand_in import grafana_stand_in

SHIPPED = Path(__file__).parents[2] / "dashboards"


def test_build_writes_what_check_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["dashboards", "build", "--out", str(tmp_path)]) == 0
    assert str(tmp_path / "live.json") in capsys.readouterr().out
    assert cli.main(["dashboards", "check", str(tmp_path)]) == 0
    assert cli.main(["dashboards", "check"]) == 0
    assert cli.main(["dashboards", "check", str(SHIPPED)]) == 0


def test_check_fails_with_one_line_per_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (SHIPPED / "live.json").read_text(encoding="utf-8")
    path = tmp_path / "live.json"
    path.write_text(text.replace("specbench_gpu_power_watts", "specbench_gpu_power"), "utf-8")
    assert cli.main(["dashboards", "check", str(path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("specbench / live run: GPU power: query A: specbench_gpu_power is not")


def test_push(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", "secret")
    with grafana_stand_in() as stand_in:
        words = ["dashboards", "push", "--url", stand_in.url, "--folder", "Team"]
        assert cli.main(words) == 0
        assert stand_in.folders["specbench"]["title"] == "Team"
        assert "board specbench-live: made" in capsys.readouterr().out
        stand_in.boards["specbench-live"]["dashboard"]["revision"] = 1
        assert cli.main(words) == 2
        assert "--overwrite" in capsys.readouterr().err
        assert cli.main([*words, "--overwrite"]) == 0


def test_push_without_a_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GRAFANA_TOKEN", raising=False)
    assert cli.main(["dashboards", "push", "--url", "http://127.0.0.1:3000"]) == 2
    assert "GRAFANA_TOKEN" in capsys.readouterr().err


def test_an_action_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["dashboards"])
    assert stopped.value.code == 2

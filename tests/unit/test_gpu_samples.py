"""gpu.csv there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench.errors import OutputError
from specbench.gpu_samples import FILE, EnergySource, GpuSample, header, lines, parse, reason_names
from specbench.gpu_watch import GpuWatch
from specbench.store import RunDir

FULL = GpuSample(
    at_ns=12_345_678_901_234,
    gpu="0",
    utilisation=0.93,
    memory_used_bytes=20,
    memory_bytes=140,
    power_w=412.5,
    sm_hz=1_980_000_000,
    memory_hz=3_201_000_000,
    temperature_c=55,
    reasons=("sw_power_cap", "bit_0x8000"),
    energy_j=1234567.891,
    energy_from=EnergySource.COUNTER,
)
BARE = GpuSample(at_ns=1, gpu="1:mig0")
CALM = GpuSample(at_ns=2, gpu="1", reasons=(), power_w=0.0)


def test_samples_survive_the_file() -> None:
    text = header() + lines(0, [FULL, BARE]) + lines(7, [CALM])
    assert parse(text, "gpu.csv") == {0: (FULL, BARE), 7: (CALM,)}


def test_missing_is_empty_and_no_reason_is_said() -> None:
    assert lines(3, [BARE]) == "3,1,1:mig0,,,,,,,,,,\n"
    assert ",none," in lines(3, [CALM])


@pytest.mark.parametrize("line", ["0,1\n", "0,x,0,,,,,,,,,,\n", "0,1,0,,,,,,,,,5,guess\n"])
def test_damage_is_named_with_its_line(line: str) -> None:
    with pytest.raises(OutputError, match=r"gpu\.csv line 3 is damaged"):
        parse(header() + lines(0, [BARE]) + line, "gpu.csv")


def test_other_columns_are_refused() -> None:
    with pytest.raises(OutputError, match="other columns"):
        parse("seq,at\n", "gpu.csv")


def test_each_reason_has_a_name_and_choices_do_not_slow() -> None:
    names = reason_names(0x7FF)
    assert len(names) == len(set(names)) == 11
    sample = GpuSample(at_ns=0, gpu="0", reasons=reason_names(0x1 | 0x2 | 0x100 | 0x40))
    assert sample.slowed_by == ("hw_thermal_slowdown",)
    assert GpuSample(at_ns=0, gpu="0").slowed_by == ()


def test_bits_are_those_of_the_library() -> None:
    pynvml = pytest.importorskip("pynvml")
    wanted = {
        "GpuIdle": "idle",
        "ApplicationsClocksSetting": "application_clocks",
        "SwPowerCap": "sw_power_cap",
        "HwSlowdown": "hw_slowdown",
        "SyncBoost": "sync_boost",
        "SwThermalSlowdown": "sw_thermal_slowdown",
        "HwThermalSlowdown": "hw_thermal_slowdown",
        "HwPowerBrakeSlowdown": "hw_power_brake",
        "DisplayClockSetting": "display_clocks",
    }
    for theirs, ours in wanted.items():
        assert reason_names(getattr(pynvml, f"nvmlClocksThrottleReason{theirs}")) == (ours,)


@pytest.mark.parametrize("left", ["", header()[:9]])
def test_a_file_whose_header_was_cut_off_gets_it_again(
    tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_json: dict[str, Any] = {"asked": {}, "points": {}, "dropped": [], "provenance": {}}
    with RunDir.create(tmp_path, run_json) as run_dir:
        monkeypatch.setattr(run_dir, "blocks", lambda: [0])
        (tmp_path / FILE).write_text(left)
        for _ in range(2):
            GpuWatch().save(run_dir, [CALM])
    text = (tmp_path / FILE).read_text()
    assert text.startswith(header())
    assert text.count(header()) == 1
    assert parse(text, FILE) == {0: (CALM, CALM)}

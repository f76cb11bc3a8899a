"""Nothing is left of a run whose rank 0 is gone: no process, no folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specbench.engine.parallel_folder import LOCK, PREFIX, YOUNG_S, MeetingFolder, remove_stale

PATIENCE_S = 120.0


def aged(folder: Path) -> Path:
    old = folder.stat().st_mtime - 2 * YOUNG_S
    os.utime(folder, (old, old))
    return folder


def left_by_the_dead(place: Path, name: str = "dead") -> Path:
    folder = place / f"{PREFIX}{name}"
    folder.mkdir()
    (folder / LOCK).touch()
    (folder / "meeting").touch()
    return aged(folder)


def test_what_a_dead_rank_0_left_goes_and_what_lives_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, other = left_by_the_dead(tmp_path), tmp_path / "specbench-else"
    other.mkdir()
    young = left_by_the_dead(tmp_path, "young")
    os.utime(young)
    first = MeetingFolder()
    assert not dead.exists()
    assert set(tmp_path.iterdir()) == {other, young, first.path}
    second = MeetingFolder()
    aged(first.path), aged(second.path)
    remove_stale(tmp_path)
    assert first.path.exists()
    assert second.path.exists()
    first.remove()
    second.remove()
    assert not first.path.exists()
    assert not second.path.exists()


def test_a_follower_ends_with_rank_0_and_takes_the_folder_along(tmp_path: Path) -> None:
    """Killed while ranks still meet, where no connection breaks: the pipe alone tells."""
    folder = tmp_path / f"{PREFIX}run"
    folder.mkdir()
    words = [str(folder / "meeting"), "1", "2", "cpu", "600"]
    follower = subprocess.Popen(
        [sys.executable, "-m", "specbench.engine.parallel_follow", *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.perf_counter_ns() + 1e9 * PATIENCE_S
    while not (folder / "ready-1").exists() and time.perf_counter_ns() < until:
        assert follower.poll() is None
        time.sleep(0.02)
    _, said = follower.communicate(timeout=PATIENCE_S)  # closes its standard input
    assert follower.returncode == 3
    assert "rank 0 is gone" in said
    assert not folder.exists()

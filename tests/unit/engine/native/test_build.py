"""Compiling once, and saying why not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from specbench.config import EngineConfig
from specbench.engine.native import build
from specbench.engine.pair import ModelPair
from specbench.errors import ConfigError
from tests.tiny import shared_pair

COMPILER = shutil.which("c++") or ""
needs_compiler = pytest.mark.skipif(
    not COMPILER or build.native().library is None, reason="kernels do not build here"
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing compiled yet, nothing remembered."""
    monkeypatch.setattr(build, "native", build.native.__wrapped__)
    monkeypatch.setattr("specbench.engine.native.choice.native", build.native)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def facts(kernels: str = "auto") -> dict[str, str]:
    pair, config = shared_pair(), EngineConfig(dtype="float32", max_len=512, kernels=kernels)
    return ModelPair.load(pair.target, pair.draft, config).device_facts


@needs_compiler
def test_it_is_compiled_once_and_into_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = build.cache_folder()
    assert folder == tmp_path / "cache" / "specbench"
    made = build.compiled(COMPILER, folder)
    before = made.stat().st_ino
    assert build.compiled(COMPILER, folder) == made
    assert made.stat().st_ino == before
    assert [path.name for path in folder.iterdir()] == [made.name]


@needs_compiler
def test_libraries_of_old_versions_do_not_pile_up(tmp_path: Path) -> None:
    folder = build.cache_folder()
    for age in range(build.KEPT + 2):
        old = folder / f"forward-{age}.so"
        old.touch()
        os.utime(old, (age, age))
    made = build.compiled(COMPILER, folder)
    kept = {f"forward-{age}.so" for age in range(2, build.KEPT + 2)}
    assert {path.name for path in folder.iterdir()} == {made.name, *kept}


def test_without_a_compiler_torch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(build, "processor_flags", lambda: frozenset(build.NEEDED))
    assert facts()["kernels"] == "torch: no C++ compiler was found"
    assert facts()["attention"] == "bmm+softmax"
    with pytest.raises(ConfigError, match="no C\\+\\+ compiler was found"):
        facts("native")


def test_a_compiler_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'out of luck' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setattr(build, "processor_flags", lambda: frozenset(build.NEEDED))
    assert facts()["kernels"] == "torch: the kernels did not build: out of luck"


def test_an_older_processor_runs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "processor_flags", lambda: frozenset({"avx2", "fma"}))
    assert facts()["kernels"] == "torch: the processor lacks f16c"


@needs_compiler
def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "specbench"
    folder.mkdir(parents=True)
    os.chmod(folder, 0o777)  # noqa: PTH101
    assert "is not this user's alone" in facts()["kernels"]


@needs_compiler
def test_what_runs_is_recorded() -> None:
    assert facts()["kernels"].startswith("native: ")
    assert facts()["attention"] == "native"
    assert facts("torch")["kernels"] == "torch"
    assert facts("torch")["attention"] == "bmm+softmax"


def test_a_user_without_a_home_runs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("CXX", "cc")
    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr(build, "processor_flags", lambda: frozenset(build.NEEDED))
    assert facts()["kernels"].endswith("did not build: there is no home folder to keep them in")

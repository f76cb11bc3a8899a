"""Compile ``forward.cpp`` once, keep the library in the user's cache, load it.

The library is named by a hash of the sources, compiler and flags, so that a change of any of
them compiles anew. It is loaded only from a folder that nobody else can write to.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("forward.cpp")
FLAGS = ("-O3", "-mavx2", "-mfma", "-mf16c", "-std=c++17", "-shared", "-fPIC")
NEEDED = ("avx2", "fma", "f16c")
LIMIT_S = 120
KEPT = 4  # libraries of other versions that were used last


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """The loaded library and what made it, or why there is none."""

    library: ctypes.CDLL | None
    told: str


@functools.cache
def native() -> Native:
    """Load the library, compiling it when this machine has not done so yet."""
    lacking = [flag for flag in NEEDED if flag not in processor_flags()]
    if lacking:
        return Native(library=None, told=f"torch: the processor lacks {', '.join(lacking)}")
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        return Native(library=None, told="torch: no C++ compiler was found")
    try:
        return Native(
            library=ctypes.CDLL(str(compiled(compiler, cache_folder()))),
            told=f"native: {Path(compiler).name} {' '.join(FLAGS[:4])}",
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Native(library=None, told=f"torch: the kernels did not build: {_short(error)}")


def compiled(compiler: str, folder: Path) -> Path:
    """The library in ``folder``, made by ``compiler`` unless it is there.

    Raises:
        OSError: the folder or the compiler cannot be used.
        subprocess.SubprocessError: the compiler failed or took longer than ``LIMIT_S``.
    """
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, check=True, timeout=LIMIT_S
    ).stdout
    key = hashlib.sha256(version)
    for path in (SOURCE, *sorted(SOURCE.parent.glob("*.h"))):
        key.update(path.read_bytes())
    key.update(" ".join(FLAGS).encode())
    library = folder / f"forward-{key.hexdigest()[:32]}.so"
    if library.exists():
        with contextlib.suppress(OSError):  # a cache that is read only
            library.touch()
        return library
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / "forward.so"
        subprocess.run(
            [compiler, *FLAGS, "-o", str(made), str(SOURCE)],
            capture_output=True,
            check=True,
            timeout=LIMIT_S,
        )
        made.replace(library)
    _drop_old(folder, library)
    return library


def _drop_old(folder: Path, library: Path) -> None:
    """Remove all but the ``KEPT`` libraries that were used last, and ``library``; a process that
    has one of them loaded goes on with it."""
    with contextlib.suppress(OSError):  # another process may be dropping the same
        others = [path for path in folder.glob("forward-*.so") if path != library]
        for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
            path.unlink(missing_ok=True)


def cache_folder() -> Path:
    """The user's own folder for compiled code.

    Raises:
        OSError: it cannot be made, or others can write to it.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(base) if base else Path.home() / ".cache") / "specbench"
    except RuntimeError as error:  # a user without a name and without HOME, as in containers
        raise OSError("there is no home folder to keep them in") from error
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{folder} is not this user's alone")
    return folder


@functools.cache
def processor_flags() -> frozenset[str]:
    """What the first processor can do, as Linux lists it; empty where that is not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def _short(error: Exception) -> str:
    output = getattr(error, "stderr", None)
    text = output.decode(errors="replace") if isinstance(output, bytes) and output else str(error)
    return text.strip().splitlines()[-1][:200] if text.strip() else type(error).__name__

"""Programs of the system that tests start: missing ones skip the test, in CI they fail it."""

from __future__ import annotations

import os
import shutil

import pytest


def need(program: str) -> str:
    """The path of ``program``."""
    path = shutil.which(program)
    if path is not None:
        return path
    message = f"{program} is not installed"
    if os.environ.get("SPECBENCH_CI") == "1":
        pytest.fail(message)
    pytest.skip(message)

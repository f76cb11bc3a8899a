"""Compare a text with its golden file; the rewrite switch rewrites it and still fails the run."""

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "golden" / "report"
SWITCH = "SPECBENCH_REWRITE_GOLDEN"


def check_golden(name: str, text: str) -> None:
    """Fail unless ``text`` is what the golden file ``name`` holds."""
    path = FOLDER / name
    if os.environ.get(SWITCH) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was rewritten: read the change, then run again without {SWITCH}.")
    assert path.read_text(encoding="utf-8") == text, f"{name} differs; {SWITCH}=1 rewrites it"

"""docs/failures.md from the doctor's tables: python -m tools.make_failures_doc."""

from __future__ import annotations

from pathlib import Path

from specbench.doctor.failures import PAGE, document

DOC = Path(__file__).parents[1] / PAGE

if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")

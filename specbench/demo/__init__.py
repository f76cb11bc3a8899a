"""The shipped pair: where its folders are. How it was made: tools/train_demo_pair.py and its cards."""

from __future__ import annotations

from pathlib import Path

TARGET = Path(__file__).parent / "target"
DRAFT = Path(__file__).parent / "draft"

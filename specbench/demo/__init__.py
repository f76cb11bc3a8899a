"""The shipped pair: where its folders are; tools/train_demo_pair.py made it."""

from __future__ import annotations

from pathlib import Path

TARGET = Path(__file__).parent / "target"
DRAFT = Path(__file__).parent / "draft"

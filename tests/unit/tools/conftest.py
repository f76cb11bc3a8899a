"""The tools are scripts of the repository, not of the package: make them importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

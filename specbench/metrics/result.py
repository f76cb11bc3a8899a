"""What the summary holds of one arm: its point, figures, verdict and caveats."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.config import SpecConfig
from specbench.estimate import Caveat
from specbench.metrics.arms import ArmKey
from specbench.metrics.figures import Figures
from specbench.metrics.lossless import Lossless


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm. ``total`` pools all categories; ``categories`` has one record for each."""

    key: ArmKey
    spec: SpecConfig
    total: Figures
    categories: tuple[Figures, ...]
    lossless: Lossless | None
    caveats: tuple[Caveat, ...]

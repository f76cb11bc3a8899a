"""The ``point`` label: a short readable id of one arm of a sweep, and what it stands for.

The label is the key of every series, so it is short; what it means stands in
``specbench_point_info``. The number of labels is bounded: each brings some two hundred series.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specbench.collectors.catalogue import MOST_POINTS, MOST_POSITIONS
from specbench.config import SpecConfig
from specbench.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What runs under one label. Temperature and workload are None where each request differs."""

    spec: SpecConfig
    batch_size: int
    temperature: float | None = None
    workload: str | None = None

    @property
    def arm(self) -> str:
        """The ``arm`` label."""
        return "baseline" if self.spec.is_baseline else "spec"


def name_points(cells: Iterable[Cell]) -> dict[Cell, str]:
    """A label for each distinct cell, in order of appearance.

    Point and batch size are always in it; workload and temperature only where the cells differ
    in them. The temperature stands last, after the only ``.t`` that ends in a number, so that no
    two cells share a label whatever a workload is called.

    >>> chain = SpecConfig.chain(3)
    >>> list(name_points([Cell(spec=chain, batch_size=4, temperature=0.0)]).values())
    ['k3.bs4']
    >>> cells = [Cell(spec=chain, batch_size=4, temperature=t) for t in (0.0, 0.7)]
    >>> list(name_points(cells).values())
    ['k3.bs4.t0', 'k3.bs4.t0.7']

    Raises:
        ConfigError: more cells than labels are allowed, or a draft deeper than positions are.
    """
    known = list(dict.fromkeys(cells))
    if len(known) > MOST_POINTS:
        raise ConfigError(
            f"{len(known)} points would be {len(known)} label values in Prometheus.",
            expected=f"At most {MOST_POINTS} per process: each brings some two hundred series.",
            todo="Split the grid over several runs, or run it without metrics.",
        )
    for cell in known:
        if cell.spec.num_steps > MOST_POSITIONS:
            raise ConfigError(
                f"{cell.spec.point_id} drafts {cell.spec.num_steps} positions.",
                expected=f"At most {MOST_POSITIONS} are label values in Prometheus.",
                todo="Lower num_steps, or run it without metrics.",
            )
    workloads = len({cell.workload for cell in known}) > 1
    temperatures = len({cell.temperature for cell in known}) > 1
    return {cell: _name(cell, workloads, temperatures) for cell in known}


def _name(cell: Cell, workloads: bool, temperatures: bool) -> str:
    parts = [cell.spec.point_id, f"bs{cell.batch_size}"]
    if workloads and cell.workload is not None:
        parts.append(cell.workload)
    if temperatures and cell.temperature is not None:
        parts.append(f"t{cell.temperature:g}")
    return ".".join(parts)

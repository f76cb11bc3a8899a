"""What a sweep is asked to do: its settings, checked and written to run.json, and their grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specbench.config import Arrival, EngineConfig, LoadConfig, SpecConfig, load_strict
from specbench.errors import ConfigError
from specbench.estimate import Caveat
from specbench.grid import Grid, Point, expand


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """What a sweep is asked to do; stored in run.json and compared when it is resumed.

    ``requests`` is the number of prompts of each arm, split into ``blocks`` blocks; into fewer at
    a batch size where a block would not fill the batch ``waves`` times (0: never fewer). Paths are
    None for the shipped pair; ``server`` is the address of an outside server, ``model`` one of
    its models, ``baseline_server`` the address of one that decodes plainly, for the plain arms.
    ``noise_floor`` adds a second plain arm; ``slo`` and ``reader_rate`` are what the report judges
    latency by.
    """

    target: str | None = None
    draft: str | None = None
    server: str | None = None
    baseline_server: str | None = None
    backend: str = "auto"
    model: str | None = None
    workloads: tuple[str, ...] = ("default",)
    num_steps: tuple[int, ...] = (0, 1, 2, 3, 5)
    topk: tuple[int, ...] = (1, 4)
    num_draft_tokens: tuple[int, ...] = (8, 16)
    batch_sizes: tuple[int, ...] = (1,)
    temperatures: tuple[float, ...] = (0.0,)
    requests: int = 20
    blocks: int = 2
    waves: int = 0
    max_tokens: int | None = None
    seed: int = 0
    capture_ids: tuple[int, ...] | None = None
    capture_default: bool = False
    as_engine: str | None = None
    engine: EngineConfig = EngineConfig()
    load: LoadConfig = LoadConfig()
    noise_floor: bool = False
    slo: str | None = None
    reader_rate: float | None = None

    def __post_init__(self) -> None:
        if self.requests < 1 or not 1 <= self.blocks <= self.requests:
            raise ConfigError(
                f"requests={self.requests} blocks={self.blocks}.",
                expected="At least one block, and no more blocks than requests.",
            )
        for name in ("workloads", "num_steps", "topk", "num_draft_tokens"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty.", expected="At least one value.")
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ConfigError(f"batch_sizes={self.batch_sizes}.", expected="Each at least 1.")
        if not self.temperatures or min(self.temperatures) < 0:
            raise ConfigError(f"temperatures={self.temperatures}.", expected="Each at least 0.")

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What the settings themselves have to be held against, at every point."""
        return self.engine.rules.unused(self.temperatures)

    @property
    def as_asked(self) -> SweepSpec:
        """As the flags said it, without the mean rate that a timed trace brought along."""
        if self.load.arrival is not Arrival.TRACE:
            return self
        return dataclasses.replace(self, load=dataclasses.replace(self.load, request_rate=None))

    def blocks_at(self, batch_size: int) -> int:
        """The blocks of one arm at ``batch_size``.

        Short blocks keep slow seconds of the machine from hitting one arm alone, but a batch is
        full only until the last requests of a block run out.
        """
        if self.waves == 0 or batch_size == 1:
            return self.blocks
        return max(1, min(self.blocks, self.requests // (self.waves * batch_size)))

    def grid(self) -> Grid:
        """The points to run and what was dropped.

        Raises:
            ConfigError: nothing that was asked is left but the baseline, which was not asked.
        """
        grid = expand(self.num_steps, self.topk, self.num_draft_tokens, as_engine=self.as_engine)
        grid = grid.without(self.engine.rules)
        if grid.dropped and len(grid.points) == 1 and 0 not in self.num_steps:
            raise ConfigError(f"No point of the grid is legal. The first: {grid.dropped[0].reason}")
        if self.noise_floor:
            again = Point(spec=SpecConfig.baseline(), again=True)
            return dataclasses.replace(grid, points=(*grid.points, again))
        return grid

    def to_json(self) -> dict[str, Any]:
        """Plain data, the inverse of ``from_json``."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, source: str) -> SweepSpec:
        """Read what ``to_json`` wrote; raises ConfigError on unknown keys or wrong types."""
        return load_strict(cls, values, source=source)

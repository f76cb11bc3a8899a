"""A grid of points: parse lists and ranges, drop what is illegal with its reason, merge duplicates.

Nothing runs before the whole grid is known to be legal (semantics.md 3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.resolve import Override, resolve
from specbench.verification import VerifyRules

MOST_VALUES = 1000
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_VALUE = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One legal point. ``derived`` says that num_draft_tokens follows from num_steps (a chain).

    ``again`` marks a second arm of the same spec, for the noise floor.
    """

    spec: SpecConfig
    derived: bool = False
    overrides: tuple[Override, ...] = ()
    again: bool = False

    @property
    def point_id(self) -> str:
        """The short name of the point's spec."""
        return f"{self.spec.point_id}-again" if self.again else self.spec.point_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A combination that was asked for and will not run, and why."""

    num_steps: int
    topk: int
    num_draft_tokens: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The points to run and the combinations that were dropped.

    The baseline comes first; it is missing only where a server cannot decode plainly.
    """

    points: tuple[Point, ...]
    dropped: tuple[Dropped, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What an engine would change in silence, a sentence for each point that it concerns."""
        return tuple(
            f"{point.point_id}: "
            + ", ".join(f"{o.name} {o.asked} becomes {o.resolved} ({o.reason})" for o in changed)
            for point in self.points
            if (changed := point.overrides)
        )

    def told_drops(self, most: int = 5) -> tuple[str, ...]:
        """A line for each dropped combination, up to ``most``, and one that counts the rest."""
        told = [
            f"dropped {one.num_steps}/{one.topk}/{one.num_draft_tokens}: {one.reason}"
            for one in self.dropped[:most]
        ]
        rest = len(self.dropped) - most
        return (*told, *([f"and {rest} more, which report.md lists"] if rest > 0 else []))

    def without(self, rules: VerifyRules) -> Grid:
        """The grid without the points that ``rules`` cannot check: trees, where only chains are."""
        kept, dropped = [], list(self.dropped)
        for point in self.points:
            try:
                rules.check(point.spec.topk)
            except ConfigError as error:
                dropped.append(Dropped(**asdict(point.spec), reason=str(error)))
            else:
                kept.append(point)
        return Grid(points=tuple(kept), dropped=tuple(dropped))

    def less(self, refused: Mapping[SpecConfig, str]) -> Grid:
        """The grid without the points of ``refused``, which go to the dropped with its reasons."""
        return Grid(
            points=tuple(point for point in self.points if point.spec not in refused),
            dropped=(
                *self.dropped,
                *(Dropped(**asdict(spec), reason=reason) for spec, reason in refused.items()),
            ),
        )


def parse_values(text: str, *, flag: str, least: int = 0) -> tuple[int, ...]:
    """Read ``1,3,5``, ``1..7`` or a mix; order is kept, repeats are dropped.

    >>> parse_values("0..2,5,2", flag="--num-steps")
    (0, 1, 2, 5)

    Raises:
        ConfigError: not a list of whole numbers, a backward range, a value under ``least``.
    """
    values: dict[int, None] = {}
    for part in text.split(","):
        part = part.strip()
        span = _RANGE.fullmatch(part)
        if span:
            low, high = int(span[1]), int(span[2])
            if high < low or high - low >= MOST_VALUES:
                raise ConfigError(
                    f"{flag}: the range {part} holds {max(0, high - low + 1)} values.",
                    expected=f"low..high with 1 to {MOST_VALUES} values.",
                )
            values.update(dict.fromkeys(range(low, high + 1)))
        elif _VALUE.fullmatch(part):
            values[int(part)] = None
        else:
            raise ConfigError(
                f"{flag}: {part!r} is not a whole number or a range.",
                expected="A list such as 1,3,5, a range such as 1..7, or a mix of both.",
            )
    if min(values) < least:
        raise ConfigError(f"{flag}: {min(values)} is too small.", expected=f"At least {least}.")
    return tuple(values)


def expand(
    num_steps: Sequence[int],
    topk: Sequence[int],
    num_draft_tokens: Sequence[int],
    *,
    as_engine: str | None = None,
) -> Grid:
    """All legal points of the product, baseline first (it is always there).

    For ``topk`` 1 the list of ``num_draft_tokens`` does not apply: each chain appears once, marked
    derived. With ``as_engine`` each combination is resolved as that engine would.
    """
    points: dict[SpecConfig, Point] = {
        SpecConfig.baseline(): Point(spec=SpecConfig.baseline(), derived=True)
    }
    dropped: list[Dropped] = []
    for k in num_steps:
        for b in topk if k else (1,):
            for n in num_draft_tokens if (b > 1 or (as_engine and k)) else (None,):
                try:
                    spec, overrides = resolve(
                        num_steps=k, topk=b, num_draft_tokens=n, as_engine=as_engine
                    )
                except ConfigError as error:
                    dropped.append(
                        Dropped(num_steps=k, topk=b, num_draft_tokens=n or 0, reason=str(error))
                    )
                    continue
                derived = n is None
                point = points.setdefault(spec, Point(spec=spec, derived=derived))
                new = () if derived else (o for o in overrides if o not in point.overrides)
                points[spec] = replace(point, overrides=(*point.overrides, *new))
    return Grid(points=tuple(points.values()), dropped=tuple(dropped))

"""What a row of the ledger is, and the sums that other tools' formulas are written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specbench.columns import IntArray
from specbench.config import SpecConfig
from specbench.estimate import Evidence
from specbench.metrics.acceptance import weakest
from specbench.metrics.sums import RequestSums

Value = float | tuple[float | None, ...] | Mapping[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One tool's figure for a run: ``why`` says how it differs from specbench's."""

    tool: str
    field: str
    value: Value
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTotals:
    """Per-request totals of one arm.

    ``drafted`` and ``chunks`` (tokens of each delivery) are None where some request did not say.
    ``depth`` and ``nodes`` are the configured ones, as tools with a static denominator use them.
    """

    names: tuple[str, ...]
    completion: tuple[int, ...]
    steps: tuple[int, ...]
    accepted: tuple[int, ...]
    drafted: tuple[int, ...] | None
    chunks: tuple[IntArray, ...] | None
    depth: int
    nodes: int

    def per_request(self, value: Callable[[int], float]) -> dict[str, float]:
        """``value`` of the index of each request that has a verify step, by request id."""
        return {name: value(index) for index, name in enumerate(self.names) if self.steps[index]}

    def mean(self, value: Callable[[int], float]) -> float | None:
        """The mean over requests of ``value``."""
        values = list(self.per_request(value).values())
        return sum(values) / len(values) if values else None


def ledger_totals(requests: Sequence[RequestSums], spec: SpecConfig | None) -> LedgerTotals | None:
    """None when a request does not even give totals, or nothing was drafted."""
    known = [r for r in requests if r.accepted is not None and r.completion is not None]
    steps = sum(r.verify_steps or 0 for r in known)
    if len(known) < len(requests) or not steps or weakest(requests) < Evidence.TOTALS:
        return None
    drafted = [r.drafted for r in known if r.drafted is not None]
    chunks = [r.arrived.tokens[r.arrived.tokens > 0] for r in known]
    whole = all(c.sum() == r.completion for c, r in zip(chunks, known, strict=True))
    deepest = max((len(r.histogram) - 1 for r in known if r.histogram), default=0)
    widest = max(
        (-(-r.drafted // r.verify_steps) for r in known if r.drafted and r.verify_steps), default=0
    )
    return LedgerTotals(
        names=tuple(r.trace.request.request_id for r in known),
        completion=tuple(r.completion or 0 for r in known),
        steps=tuple(r.verify_steps or 0 for r in known),
        accepted=tuple(r.accepted or 0 for r in known),
        drafted=tuple(drafted) if len(drafted) == len(known) else None,
        chunks=tuple(chunks) if whole else None,
        depth=spec.num_steps if spec else deepest,
        nodes=spec.num_draft_tokens - 1 if spec else widest,
    )

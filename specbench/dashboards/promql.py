"""PromQL from the catalogue: a series or label that does not exist cannot be written.

Definitions are those of docs/glossary.md. Ratios are quotients of sums, each taken over the same
window, so that a scrape interval longer than a step changes nothing; a denominator of 0 gives no
value, never NaN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from specbench.collectors import catalogue as cat
from specbench.collectors.catalogue import Kind, Series
from specbench.errors import ConfigError

TARGET = ("job", "instance")
ARM = (*TARGET, "arm", "point")
CELL = (*TARGET, "workload", "batch_size", "temperature")
POINT = ("workload", "batch_size", "temperature", "num_steps", "topk", "num_draft_tokens")
PLACED = 'position!="unknown"'  # a server that gives sums only does not say which position
SPEC, BASELINE = 'arm="spec"', 'arm="baseline"'


def select(series: Series, *matchers: str, part: str = "") -> str:
    """``series`` with label matchers such as ``arm="spec"``.

    Args:
        series: from the catalogue.
        matchers: each a label, an operator and a quoted value.
        part: _bucket, _sum or _count of a histogram.

    Raises:
        ConfigError: a label or part that the series does not have.

    >>> select(cat.VERIFY_STEPS, SPEC)
    'specbench_verify_steps_total{arm="spec"}'
    """
    parts = ("_bucket", "_sum", "_count") if series.kind is Kind.HISTOGRAM else ("",)
    if part not in parts:
        raise ConfigError(f"{series.name}{part} does not exist.", expected=f"One of {parts}.")
    known = {*series.labels, *TARGET, *(("le",) if part == "_bucket" else ())}
    for matcher in matchers:
        if re.split(r"[=!]", matcher)[0] not in known:
            raise ConfigError(
                f"{series.name} has no label for {matcher}.", expected=f"One of {sorted(known)}."
            )
    inside = "{" + ",".join(matchers) + "}" if matchers else ""
    return f"{series.name}{part}{inside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which series are meant, and over which window.

    ``take`` is increase or rate (what happened in ``span``), or counter: a total since the
    process began, exact whatever the scrape interval. ``run`` is a dashboard variable that holds
    a run_id. ``offset`` shifts every series in time.
    """

    take: str = "increase"
    span: str = "$__rate_interval"
    matchers: tuple[str, ...] = ('instance=~"$instance"',)
    points: tuple[str, ...] = ('point=~"$point"',)
    run: str = ""
    offset: str = ""

    def arm(self, *matchers: str) -> Scope:
        """The same, of these arms only; a choice of points never leaves the baseline out."""
        points = () if BASELINE in matchers else self.points
        return replace(self, points=(*points, *matchers))

    def of(self, series: Series, *matchers: str, part: str = "") -> str:
        """The samples of ``series``, of the chosen points where it has that label."""
        points = self.points if "point" in series.labels else ()
        sample = select(series, *self.matchers, *points, *matchers, part=part)
        if self.take == "counter":
            return sample + self._later()
        return f"{self.take}({sample}[{self.span}]{self._later()})"

    def by(self, labels: tuple[str, ...], series: Series, *matchers: str, part: str = "") -> str:
        """The sum of ``series`` for each value of ``labels``."""
        return f"sum by ({', '.join(labels)}) ({self.of(series, *matchers, part=part)})"

    def tag(self, expression: str) -> str:
        """``expression`` (by job and instance at least) while ``run`` is what runs there."""
        info = select(cat.RUN_INFO, f'run_id="{self.run}"') + self._later()
        return f"({expression}) * on (job, instance) group_left (run_id) {info}"

    def at_end(self, expression: str) -> str:
        """The last value of ``expression`` in the shown time while ``run`` was running.

        It is there after the run has ended, and knows nothing of the next run at that address.
        """
        return f"last_over_time(({self.tag(expression)})[$__range:$resolution])"

    def info(self, *matchers: str) -> str:
        """What the points stand for: one sample of 1 for each."""
        matchers = (*self.matchers, *self.points, *matchers)
        return select(cat.POINT_INFO, *matchers) + self._later()

    def _later(self) -> str:
        return f" offset {self.offset}" if self.offset else ""


def ratio(above: str, below: str) -> str:
    """``above`` ÷ ``below`` where both have the same labels; no value where below is 0."""
    return f"{above} / ({below} > 0)"


def accept_length(scope: Scope, by: tuple[str, ...] = ARM) -> str:
    """τ = 1 + Σa ÷ V, pooled over verify steps, before trimming."""
    spec = scope.arm(SPEC)
    steps = spec.by(by, cat.VERIFY_STEPS)
    accepted = f"({spec.by(by, cat.ACCEPTED_AT)} or 0 * {steps})"
    return f"1 + {ratio(accepted, steps)}"


def tokens_per_step(scope: Scope, by: tuple[str, ...] = ARM) -> str:
    """τ_emit: emitted tokens ÷ verify steps, after trimming; 1 for a baseline."""
    return ratio(scope.by(by, cat.EMITTED), scope.by(by, cat.VERIFY_STEPS))


def survival(scope: Scope, by: tuple[str, ...] = ARM) -> str:
    """P(a ≥ i) for each position i: accepted at i ÷ verify steps."""
    spec = scope.arm(SPEC)
    joined = ", ".join(by)
    return (
        f"{spec.by((*by, 'position'), cat.ACCEPTED_AT, PLACED)} "
        f"/ on ({joined}) group_left () ({spec.by(by, cat.VERIFY_STEPS)} > 0)"
    )


def step_seconds(scope: Scope, by: tuple[str, ...] = ARM) -> str:
    """Mean wall time of a batch step."""
    return mean(scope, cat.STEP_SECONDS, by)


def mean(scope: Scope, series: Series, by: tuple[str, ...] = ARM) -> str:
    """Mean of a histogram's observations."""
    return ratio(scope.by(by, series, part="_sum"), scope.by(by, series, part="_count"))


def part_seconds(scope: Scope, by: tuple[str, ...] = ARM) -> str:
    """Wall time of each part for one batch step; the parts add up to the step's time."""
    joined = ", ".join(by)
    return (
        f"{scope.by((*by, 'part'), cat.PART_SECONDS, part='_sum')} "
        f"/ on ({joined}) group_left () ({scope.by(by, cat.STEP_SECONDS, part='_count')} > 0)"
    )


def quantile(q: float, scope: Scope, series: Series, by: tuple[str, ...] = ARM) -> str:
    """A quantile of a histogram, interpolated within its bucket; no value without samples."""
    buckets = scope.by((*by, "le"), series, part="_bucket")
    return f"histogram_quantile({q}, {buckets}) >= 0"


def per_second(scope: Scope, series: Series, by: tuple[str, ...] = ARM) -> str:
    """Events per second over the window."""
    return replace(scope, take="rate").by(by, series)


def decode_speed(scope: Scope, by: tuple[str, ...] = ARM) -> str:
    """Emitted tokens per second of batch steps: τ_emit × running requests ÷ step time."""
    return ratio(scope.by(by, cat.EMITTED), scope.by(by, cat.STEP_SECONDS, part="_sum"))


def described(scope: Scope, expression: str, *matchers: str, keep: tuple[str, ...] = POINT) -> str:
    """``expression`` (by ARM) with labels of what its point stands for."""
    info = scope.info(*matchers)
    return f"({expression}) * on ({', '.join(ARM)}) group_left ({', '.join(keep)}) {info}"


def versus_baseline(spec: tuple[Scope, str], plain: tuple[Scope, str]) -> str:
    """``spec`` ÷ ``plain``, each by ARM, at the same workload, batch size and temperature."""
    joined = ", ".join(CELL)
    base = described(*plain, keep=CELL[len(TARGET) :])
    return f"{described(*spec)} / on ({joined}) group_left () max by ({joined}) ({base})"


def speedup(scope: Scope) -> str:
    """Tokens per step ÷ step time, over the same of the baseline arm at the same batch."""
    spec, plain = (
        (arm, f"({tokens_per_step(arm)}) / ({step_seconds(arm)})")
        for arm in (scope.arm(SPEC), scope.arm(BASELINE))
    )
    return versus_baseline(spec, plain)


def break_even(scope: Scope) -> str:
    """Speculative step time ÷ plain step time at the same batch: the τ_emit that breaks even."""
    spec, plain = ((arm, step_seconds(arm)) for arm in (scope.arm(SPEC), scope.arm(BASELINE)))
    return versus_baseline(spec, plain)


def joules_per(scope: Scope, series: Series) -> str:
    """Energy of all devices of a process ÷ increase of ``series``, over the same window."""
    energy = scope.by(TARGET, cat.GPU_ENERGY)
    return ratio(energy, replace(scope, points=()).by(TARGET, series))

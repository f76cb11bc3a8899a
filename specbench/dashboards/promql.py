"""PromQL from the catalogue: a series or label that does not exist cannot be written.

Definitions are those of docs/glossary.md. Ratios are quotients of sums, each taken over the same
window, so that a scrape interval longer than a step changes nothing; a denominator of 0 gives no
value, never NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specbench.collectors import catalogue as cat
from specbench.collectors.catalogue import Kind, Series
from specbench.errors import ConfigError

TARGET = ("job", "instance")
ARM = (*TARGET, "point")
CELL = (*TARGET, "workload", "batch_size", "temperature")
POINT = ("workload", "batch_size", "temperature", "num_steps", "topk", "num_draft_tokens")
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
        if matcher.split("=")[0].rstrip("!") not in known:
            raise ConfigError(
                f"{series.name} has no label for {matcher}.", expected=f"One of {sorted(known)}."
            )
    inside = "{" + ",".join(matchers) + "}" if matchers else ""
    return f"{series.name}{part}{inside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which series are meant, and over which window.

    ``take`` is increase (what happened in ``span``) or last_over_time (the counter itself, a
    total since the process began: exact, and there after the run has ended). ``run`` is a
    dashboard variable that names one run: totals are then those of that run only, although the
    next run may use the same address. ``offset`` shifts every series in time.
    """

    take: str = "increase"
    span: str = "$__rate_interval"
    matchers: tuple[str, ...] = ('instance=~"$instance"',)
    points: tuple[str, ...] = ('point=~"$point"',)
    run: str = ""
    offset: str = ""

    def arm(self, *matchers: str) -> Scope:
        """The same, of these arms only; a baseline is never left out by a choice of points."""
        points = () if BASELINE in matchers else self.points
        return replace(self, points=(*points, *matchers))

    def of(self, series: Series, *matchers: str, part: str = "") -> str:
        """The samples of ``series``: by arm and point, where it has these labels."""
        points = self.points if "point" in series.labels else ()
        sample = select(series, *self.matchers, *points, *matchers, part=part)
        offset = f" offset {self.offset}" if self.offset else ""
        if self.run:
            return f"max_over_time(({sample} {self.of_run()})[{self.span}:5s]{offset})"
        return f"{self.take}({sample}[{self.span}]{offset})"

    def of_run(self) -> str:
        """What keeps only the times and addresses of the run, and names it."""
        info = select(cat.RUN_INFO, f'run_id="{self.run}"')
        return f"* on (job, instance) group_left (run_id) {info}"

    def by(self, labels: tuple[str, ...], series: Series, *matchers: str, part: str = "") -> str:
        """The sum of ``series`` for each value of ``labels``."""
        return f"sum by ({', '.join(labels)}) ({self.of(series, *matchers, part=part)})"


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
        f"{spec.by((*by, 'position'), cat.ACCEPTED_AT)} "
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
    """``expression`` (by ARM) with what its point stands for, from specbench_point_info."""
    series = cat.POINT_INFO
    offset = f" offset {scope.offset}" if scope.offset else ""
    selected = select(series, *scope.matchers, *matchers)
    info = f"last_over_time({selected}[{_lasting(scope.span)}]{offset})"
    labels = ", ".join(dict.fromkeys((*ARM, *keep)))
    info = f"max by ({labels}) ({info})"
    return f"({expression}) * on (job, instance, point) group_left ({', '.join(keep)}) {info}"


def _lasting(span: str) -> str:
    """A window in which an information series surely has a sample."""
    return "$__range" if span == "$__range" else "5m"


def versus_baseline(scope: Scope, spec: str, plain: str, *matchers: str) -> str:
    """``spec`` ÷ ``plain``, each by ARM, at the same workload, batch size and temperature."""
    joined = ", ".join(CELL)
    mine = described(scope, spec, SPEC, *matchers)
    keep = tuple(label for label in CELL if label not in TARGET)
    base = described(scope, plain, BASELINE, *matchers, keep=keep)
    return f"{mine} / on ({joined}) group_left () max by ({joined}) ({base})"


def speedup(scope: Scope, *matchers: str) -> str:
    """Tokens per step ÷ step time, over the same of the baseline arm at the same batch."""
    spec, plain = scope.arm(SPEC), scope.arm(BASELINE)
    speeds = (
        f"({tokens_per_step(arm)}) / ({step_seconds(arm)})" for arm in (spec, plain)
    )
    return versus_baseline(scope, *speeds, *matchers)


def break_even(scope: Scope, *matchers: str) -> str:
    """Speculative step time ÷ plain step time at the same batch: the τ_emit that breaks even."""
    spec, plain = scope.arm(SPEC), scope.arm(BASELINE)
    return versus_baseline(scope, step_seconds(spec), step_seconds(plain), *matchers)


def joules_per(scope: Scope, series: Series) -> str:
    """Energy of all devices of a process ÷ increase of ``series``, over the same window."""
    energy = scope.by(TARGET, cat.GPU_ENERGY)
    return ratio(energy, replace(scope, points=()).by(TARGET, series))

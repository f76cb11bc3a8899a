"""From the blocks of a run to the summary: every arm's figures, and the best point of each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specbench.config import SpecConfig
from specbench.errors import ConfigError, OutputError
from specbench.estimate import Caveat, Estimate
from specbench.metrics.account import TokenAccount, token_account
from specbench.metrics.arms import Arm, ArmKey, Cell, gather
from specbench.metrics.best import Best, best_of, plain_of
from specbench.metrics.breakdowns import breakdowns
from specbench.metrics.definitions import Definition, definitions
from specbench.metrics.energy import GpuUse, gpu_uses
from specbench.metrics.figures import ArmResult, figures
from specbench.metrics.goodput import Objectives, goodput
from specbench.metrics.gpu_caveats import gpu_caveats
from specbench.metrics.gpu_track import Samples
from specbench.metrics.lossless import Gap, Lossless, judge, lossy_by_rule
from specbench.metrics.reading import reading
from specbench.metrics.speedup import decode_speedup
from specbench.metrics.validity import caveats
from specbench.trace import ArmRun
from specbench.verification import LOSSY_THRESHOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryInput:
    """Facts that a summary is computed from; all of them are on disk after a run.

    ``points`` maps every point id to its spec, measured or not. ``lossless`` holds verdicts that
    the caller reached with the target's scores at hand; an arm without one is compared by its
    tokens alone. ``caveats`` by point id come from outside, those under ``""`` hang on every
    point. ``end_ids`` are the target's end tokens. ``request_rate`` is set for an open loop.
    ``gpus`` are the samples taken during each block. ``objectives`` and ``reader_tok_s`` are what
    latency is judged by, where someone asked. ``planned_blocks`` is how many blocks the whole run
    has, of all arms together; None where no one knows.
    """

    runs: tuple[ArmRun, ...]
    points: Mapping[str, SpecConfig]
    backend: str
    target: str
    draft: str
    lossless: Mapping[ArmKey, Lossless] = field(default_factory=dict)
    caveats: Mapping[str, tuple[Caveat, ...]] = field(default_factory=dict)
    end_ids: tuple[int, ...] = ()
    request_rate: float | None = None
    gpus: Samples = field(default_factory=dict)
    objectives: Objectives | None = None
    reader_tok_s: float | None = None
    planned_blocks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything that the reports print. ``arms`` are ordered by cell, then as in ``points``.

    ``ledger`` is what other tools would print for the headline's best point, ``account`` where its
    tokens came from. ``noise`` has the A/A comparison of each cell with a second plain arm. ``gpu``
    has what arms and their categories took of the GPUs, where it is known. ``unfinished`` are the
    blocks that were measured and those that were planned, where some are missing.
    """

    backend: str
    target: str
    draft: str
    request_rate: float | None
    arms: tuple[ArmResult, ...]
    bests: tuple[Best, ...]
    not_measured: tuple[str, ...]
    ledger: tuple[Definition, ...]
    gpu: Mapping[tuple[ArmKey, str], GpuUse] = field(default_factory=dict)
    account: TokenAccount | None = None
    noise: Mapping[Cell, Estimate] = field(default_factory=dict)
    objectives: Objectives | None = None
    unfinished: tuple[int, int] | None = None

    @property
    def headline(self) -> Best:
        """The cell that the verdict line is about: first workload, coldest, smallest batch."""
        return self.bests[0]

    def of_cell(self, cell: Cell) -> tuple[ArmResult, ...]:
        """The arms of one cell, baseline first."""
        return tuple(arm for arm in self.arms if arm.key.cell == cell)

    def baseline_of(self, cell: Cell) -> ArmResult | None:
        """Plain decoding in a cell; None where it was not plain."""
        return plain_of(self.of_cell(cell))


Arms = Mapping[ArmKey, Arm]


def summarise(given: SummaryInput, arms: Arms | None = None) -> Summary:
    """Compute the summary; ``arms`` are the gathered runs, where the caller has them.

    Raises:
        OutputError: no block was measured, or a block names a point that ``points`` lacks.
    """
    arms = gather(given.runs) if arms is None else arms
    if not any(arm.measured for arm in arms.values()):
        raise OutputError(
            "The run holds no measured request.",
            expected="At least one block of one point.",
            todo="Run the sweep, or go on with it by --resume.",
        )
    cells = _cells(given, arms)
    if any(
        arm.key not in given.lossless
        for found in cells.values()
        for arm in found
        if arm is not _baseline(given, found)
    ):
        given = replace(given, lossless={**judge_all(given, arms=arms), **given.lossless})
    results = {cell: _results(given, found) for cell, found in cells.items()}
    bests = tuple(best_of(cell, found, arms) for cell, found in results.items())
    return Summary(
        backend=given.backend,
        target=given.target,
        draft=given.draft,
        request_rate=given.request_rate,
        arms=tuple(result for found in results.values() for result in found),
        bests=bests,
        not_measured=tuple(p for p in given.points if p not in {key.point_id for key in arms}),
        ledger=_ledger(bests[0], arms),
        gpu=gpu_uses(arms.values(), given.gpus, open_loop=given.request_rate is not None),
        account=token_account(arms[bests[0].arm.key].requests) if bests[0].arm else None,
        noise={
            cell: seen
            for cell, found in results.items()
            for result in found
            if result.spec.is_baseline and (seen := result.total.speedup) is not None
        },
        objectives=given.objectives,
        unfinished=_unfinished(given),
    )


def _unfinished(given: SummaryInput) -> tuple[int, int] | None:
    planned = given.planned_blocks or 0
    return (len(given.runs), planned) if len(given.runs) < planned else None


def ledger_of(
    given: SummaryInput, point: str = ""
) -> tuple[ArmKey, tuple[Definition, ...], TokenAccount | None]:
    """The ledger of one arm: of ``point`` in its first cell, else of the headline's best point.

    Where no point can be named best, the first speculative one stands for it.

    Raises:
        ConfigError: the run has no such point, or it has no speculative one.
        OutputError: a block names a point that ``points`` lacks.
    """
    arms = gather(given.runs)
    _check_points(given, arms)
    spec = [key for key in arms if not given.points[key.point_id].is_baseline]
    found = [key for key in arms if key.point_id == point] if point else spec
    if not found:
        raise ConfigError(
            f"The run has no blocks of {point or 'a speculative point'}.",
            expected=f"One of {', '.join(dict.fromkeys(key.point_id for key in spec)) or 'none'}.",
        )
    key = found[0]
    if not point and (best := summarise(given, arms).headline.arm) is not None:
        key = best.key
    arm = arms[key]
    return key, definitions(arm.requests, given.points[key.point_id]), token_account(arm.requests)


def _ledger(best: Best, arms: Mapping[ArmKey, Arm]) -> tuple[Definition, ...]:
    if best.arm is None:
        return ()
    return definitions(arms[best.arm.key].requests, best.arm.spec)


def judge_all(
    given: SummaryInput, gap: Gap | None = None, arms: Arms | None = None
) -> dict[ArmKey, Lossless]:
    """The verdict of every speculative arm that has a baseline; ``gap`` settles near-ties.

    A sampled arm that was verified by a lossy rule needs no baseline to be called lossy.
    """
    verdicts: dict[ArmKey, Lossless] = {}
    loss = next((c.text for c in given.caveats.get("", ()) if c.code == LOSSY_THRESHOLDS), "")
    arms = gather(given.runs) if arms is None else arms
    for found in _cells(given, arms).values():
        baseline, again = _baseline(given, found), _again(given, found)
        control = None
        if baseline is not None and again is not None:
            control = verdicts[again.key] = judge(baseline.measured, again.measured, gap=gap)
        for arm in found:
            if baseline is not None and arm not in (baseline, again):
                verdicts[arm.key] = judge(baseline.measured, arm.measured, gap=gap, control=control)
            sampled = (
                arm.key.cell.temperature > 0 and not given.points[arm.key.point_id].is_baseline
            )
            if loss and sampled:
                verdicts[arm.key] = lossy_by_rule(verdicts.get(arm.key), loss)
    return verdicts


def _check_points(given: SummaryInput, arms: Mapping[ArmKey, Arm]) -> None:
    unknown = sorted({key.point_id for key in arms} - set(given.points))
    if unknown:
        raise OutputError(
            f"The run holds blocks of {', '.join(unknown)}, which its list of points lacks.",
            expected="A block of a listed point.",
            todo="Do not mix the blocks of two runs in one directory.",
        )


def _cells(given: SummaryInput, arms: Mapping[ArmKey, Arm]) -> dict[Cell, list[Arm]]:
    """Arms by cell, workloads in order of appearance, then by temperature and batch size."""
    _check_points(given, arms)
    order = {point: index for index, point in enumerate(given.points)}
    workloads = list(dict.fromkeys(key.cell.workload for key in arms))
    cells = sorted(
        {key.cell for key in arms},
        key=lambda c: (workloads.index(c.workload), c.temperature, c.batch_size),
    )
    return {
        cell: sorted(
            (arm for key, arm in arms.items() if key.cell == cell),
            key=lambda arm: (
                not given.points[arm.key.point_id].is_baseline,
                order[arm.key.point_id],
            ),
        )
        for cell in cells
    }


def _plain(given: SummaryInput, found: list[Arm]) -> list[Arm]:
    """The arms of plain decoding; not those in which a server accepted drafts."""
    plain = [arm for arm in found if given.points[arm.key.point_id].is_baseline]
    return [arm for arm in plain if not arm.accepted]


def _baseline(given: SummaryInput, found: list[Arm]) -> Arm | None:
    return next(iter(_plain(given, found)), None)


def _again(given: SummaryInput, found: list[Arm]) -> Arm | None:
    """The second plain arm, which shows the noise floor."""
    return next(iter(_plain(given, found)[1:]), None)


def _results(given: SummaryInput, found: list[Arm]) -> tuple[ArmResult, ...]:
    """The results of one cell."""
    baseline, again = _baseline(given, found), _again(given, found)
    noise = decode_speedup(baseline.requests, again.requests) if baseline and again else None
    return tuple(_result(given, arm, None if arm is baseline else baseline, noise) for arm in found)


def _result(
    given: SummaryInput, arm: Arm, baseline: Arm | None, noise: Estimate | None
) -> ArmResult:
    spec = given.points[arm.key.point_id]
    open_loop = given.request_rate is not None
    total = figures(arm, spec, baseline, open_loop=open_loop)
    lossless = given.lossless.get(arm.key)
    good, unknown = goodput(arm, given.objectives, open_loop=open_loop)
    own = caveats(
        arm,
        spec,
        total,
        baseline=baseline,
        lossless=lossless,
        end_ids=given.end_ids,
        noise=noise,
    )
    outside = (*given.caveats.get("", ()), *given.caveats.get(arm.key.point_id, ()))
    return ArmResult(
        key=arm.key,
        spec=spec,
        total=total,
        categories=tuple(
            figures(arm, spec, baseline, category=category, open_loop=open_loop)
            for category in arm.requests.categories
            if category
        ),
        lossless=lossless,
        caveats=(*own, *gpu_caveats(arm, given.gpus), *unknown, *outside),
        reading=reading(arm.requests, given.reader_tok_s),
        goodput=good,
        breakdowns=() if spec.is_baseline else breakdowns(arm.requests),
    )

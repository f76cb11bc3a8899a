"""From a run directory to its reports: judge losslessness, summarise, write every file.

Verdicts that needed the target's scores are kept in ``lossless.json``, so that a report can be
rebuilt where no model is at hand.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specbench import gpu_samples
from specbench.backends.base import BackendFacts
from specbench.config import SpecConfig, load_strict
from specbench.errors import ConfigError, OutputError
from specbench.estimate import Caveat
from specbench.grid import Dropped
from specbench.grown_file import whole_lines
from specbench.metrics.arms import ArmKey, gather, key_of
from specbench.metrics.goodput import Objectives, parse_objectives
from specbench.metrics.gpu_track import Samples
from specbench.metrics.lossless import Gap, Lossless
from specbench.metrics.summary import Arms, Summary, SummaryInput, judge_all, summarise
from specbench.report.bundle import files
from specbench.store import RunDir
from specbench.sweep_spec import SweepSpec
from specbench.trace import ArmRun

VERDICTS = "lossless.json"
CAVEATS = "caveats.json"


def facts_json(facts: BackendFacts) -> dict[str, Any]:
    """What run.json keeps of a backend's facts beside provenance."""
    return {
        "backend": facts.backend,
        "target": facts.target,
        "draft": facts.draft,
        "end_ids": list(facts.end_ids),
        "caveats": [dataclasses.asdict(caveat) for caveat in facts.caveats],
    }


def conclude(
    run_dir: RunDir,
    *,
    gap: Gap | None = None,
    objectives: Objectives | None = None,
    reader_tok_s: float | None = None,
) -> Summary:
    """Compute the summary of ``run_dir`` and write summary.csv, report.md, report.html and plots.

    Args:
        run_dir: open for reading at least.
        gap: the target's relative gap of its two best scores, where the models are at hand; it
            settles near-ties. Without it, verdicts that were saved earlier are used.
        objectives: in place of those that the run was asked for.
        reader_tok_s: likewise.

    Raises:
        OutputError: nothing was measured, or the run directory is not what it should be.
    """
    provenance, dropped = run_dir.provenance, _recorded(run_dir).dropped
    given = summary_input(run_dir)
    given = dataclasses.replace(
        given,
        objectives=objectives or given.objectives,
        reader_tok_s=reader_tok_s or given.reader_tok_s,
    )
    arms = gather(given.runs)
    if gap is not None:
        verdicts = judge_all(given, gap, arms)
        run_dir.write(VERDICTS, _dump(verdicts))
    else:
        verdicts = _saved(run_dir, given, arms)
    summary = summarise(dataclasses.replace(given, lossless=verdicts), arms)
    for name, data in files(summary, provenance, given.runs, dropped=dropped).items():
        run_dir.write(name, data)
    return summary


def summary_input(run_dir: RunDir) -> SummaryInput:
    """The facts on disk as the metrics want them.

    Raises:
        OutputError: run.json lacks a key or holds a wrong value.
    """
    recorded = _recorded(run_dir)
    facts, asked = recorded.facts, recorded.asked
    runs = tuple(run_dir.load_runs())
    kept = read_caveats(run_dir)
    try:
        objectives = parse_objectives(asked.slo) if asked.slo else None
    except ConfigError as error:
        raise OutputError(
            f"{run_dir.path}/run.json: asked.slo: {error.what}", expected=error.expected
        ) from error
    return SummaryInput(
        runs=runs,
        points=recorded.points,
        backend=facts.backend,
        target=facts.target,
        draft=facts.draft,
        caveats={**kept, "": (*facts.caveats, *kept.get("", ()))},
        gpus=gpu_samples_of(run_dir, runs),
        end_ids=facts.end_ids,
        request_rate=asked.load.request_rate,
        objectives=objectives,
        reader_tok_s=asked.reader_rate,
        planned_blocks=recorded.planned_blocks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    request_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    load: _Load
    slo: str | None = None
    reader_rate: float | None = None
    workloads: tuple[str, ...] = ()
    temperatures: tuple[float, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    requests: int = 1
    blocks: int = 1
    waves: int = 0

    @property
    def blocks_of_a_point(self) -> int:
        """Over all cells of the whole run."""
        spec = SweepSpec(requests=self.requests, blocks=self.blocks, waves=self.waves)
        blocks = sum(spec.blocks_at(batch_size) for batch_size in self.batch_sizes)
        return len(self.workloads) * len(self.temperatures) * blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What :func:`facts_json` wrote."""

    backend: str
    target: str
    draft: str
    end_ids: tuple[int, ...]
    caveats: tuple[Caveat, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """The parts of run.json that a report rests on, each of the type it should be."""

    facts: _Facts
    asked: _Asked
    points: Mapping[str, SpecConfig]
    dropped: tuple[Dropped, ...]
    planned_blocks: int


def _recorded(run_dir: RunDir) -> _Recorded:
    source, content = f"{run_dir.path}/run.json", run_dir.run_json
    try:
        if "facts" not in content:
            raise ConfigError(f"{source}: key 'facts' is missing.")
        asked = _only(content["asked"], _Asked)
        if isinstance(load := asked.get("load"), dict):
            asked["load"] = _only(load, _Load)
        known, points = load_strict(_Asked, asked, source=f"{source}: asked"), points_of(run_dir)
        return _Recorded(
            facts=load_strict(_Facts, content["facts"], source=f"{source}: facts"),
            asked=known,
            points=points,
            planned_blocks=known.blocks_of_a_point * len(points),
            dropped=tuple(
                load_strict(Dropped, gone, source=f"{source}: dropped")
                for gone in content["dropped"]
            ),
        )
    except ConfigError as error:
        expected = error.expected or "What `specbench sweep` wrote."
        raise OutputError(error.what, expected=expected, todo=error.todo) from error


def points_of(run_dir: RunDir) -> dict[str, SpecConfig]:
    """Every point of the run by its id, measured or not.

    Raises:
        OutputError: run.json's points are no table of specs.
    """
    source, points = f"{run_dir.path}/run.json: points", run_dir.run_json["points"]
    try:
        if not isinstance(points, dict):
            raise ConfigError(f"{source}={points!r} is no table.")
        return {
            name: load_strict(SpecConfig, values, source=f"{source}.{name}")
            for name, values in points.items()
        }
    except ConfigError as error:
        expected = error.expected or "What `specbench sweep` wrote."
        raise OutputError(error.what, expected=expected, todo=error.todo) from error


def _only(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Those of ``values`` that ``kind`` has a field for: a report needs part of what was asked."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def gpu_samples_of(run_dir: RunDir, runs: Sequence[ArmRun]) -> Samples:
    """What gpu.csv holds, by arm and block; empty when no GPU was sampled.

    Raises:
        OutputError: the file is damaged.
    """
    path = run_dir.path / gpu_samples.FILE
    text = whole_lines(path)
    blocks = gpu_samples.parse(text, str(path)) if text else {}
    return {(key_of(run), run.block): blocks[seq] for seq, run in enumerate(runs) if seq in blocks}


def add_caveats(run_dir: RunDir, point_id: str, found: Iterable[Caveat]) -> None:
    """Keep what a block's run has to be held against a point; each code and text once."""
    known = read_caveats(run_dir)
    before = known.get(point_id, ())
    after = tuple(dict.fromkeys((*before, *found)))
    if after != before:
        rows = {**known, point_id: after}
        plain = {name: [dataclasses.asdict(one) for one in of] for name, of in rows.items()}
        run_dir.write(CAVEATS, json.dumps(plain, indent=1))


def read_caveats(run_dir: RunDir) -> dict[str, tuple[Caveat, ...]]:
    """What ``add_caveats`` kept, by point.

    Raises:
        OutputError: the file is damaged.
    """
    path = run_dir.path / CAVEATS
    if not path.is_file():
        return {}
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: tuple(load_strict(Caveat, one, source=CAVEATS) for one in found)
            for name, found in rows.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, ConfigError) as error:
        raise OutputError(f"{path} is damaged: {error}.", todo="Run the sweep again.") from error


def _dump(verdicts: Mapping[ArmKey, Lossless]) -> str:
    rows = [
        {"arm": dataclasses.asdict(key), "lossless": dataclasses.asdict(verdict)}
        for key, verdict in verdicts.items()
    ]
    return json.dumps(rows, indent=1)


def _saved(run_dir: RunDir, given: SummaryInput, arms: Arms) -> dict[ArmKey, Lossless]:
    """Fresh verdicts from the tokens, with saved ones where they compared as many outputs."""
    fresh = judge_all(given, arms=arms)
    path = run_dir.path / VERDICTS
    if not path.is_file():
        return fresh
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        for row in rows:
            key = load_strict(ArmKey, row["arm"], source=VERDICTS)
            saved = load_strict(Lossless, row["lossless"], source=VERDICTS)
            if key in fresh and (fresh[key].compared, fresh[key].identical) == (
                saved.compared,
                saved.identical,
            ):
                fresh[key] = saved
    except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise OutputError(
            f"{path} is damaged: {error}.", todo="Delete it; the report is rebuilt without it."
        ) from error
    return fresh

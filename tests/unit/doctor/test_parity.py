"""Parity probes: all agree on a sound engine, and the one that should fails under its fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from specbench.config import EngineConfig
from specbench.doctor.findings import Severity, rank
from specbench.doctor.parity import NAMES, ParityReport, parity_findings
from specbench.doctor.parity_setup import engines
from specbench.engine import engine as engine_module
from specbench.engine.batch import Batch, BatchInputs
from specbench.engine.engine import Engine
from specbench.engine.faults import inject
from specbench.engine.graphs import GraphMode
from specbench.engine.pair import ModelPair
from specbench.engine.runner import Scores, TargetRunner
from specbench.engine.tree import Tree
from specbench.engine.verify import Verdict, verify
from specbench.errors import ConfigError, EngineError, WorkloadError
from tests.drive import new_request
from tests.tiny import shared_pair

Change = Callable[[Engine], None]
PROMPTS = [new_request(f"r{i}", [(j * 7 + i * 31 + 5) % 250 for j in range(40)]) for i in range(3)]


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return load(skilled=True)


@pytest.fixture(scope="module")
def dead() -> ModelPair:
    """A pair whose draft is hardly ever right."""
    return load(skilled=False)


def load(*, skilled: bool) -> ModelPair:
    files = shared_pair(skilled=skilled)
    config = EngineConfig(dtype="float32", kernels="torch")
    return ModelPair.load(files.target, files.draft, config)


def probed(pair: ModelPair, change: Change | None, names: Sequence[str] = NAMES) -> ParityReport:
    return parity_findings(pair, engines(pair, change=change), PROMPTS, names=names)


def accused(report: ParityReport) -> list[str]:
    """Probes that disagree, first the one that the doctor names first."""
    return [f.code.removeprefix("parity.") for f in rank(report.findings)]


def by_name(name: str) -> Change:
    return lambda engine: inject(engine, name)


def only_replayed(engine: Engine) -> None:
    """A graph that was captured with the default layers (F4)."""
    if engine.graph_mode is not GraphMode.EAGER:
        inject(engine, "graph_default")


class AllSeen(TargetRunner):
    """Every node of a tree sees every other (F30)."""

    def verify(self, batch: Batch, tree: Tree) -> Scores:
        return super().verify(batch, replace(tree, seen=tree.seen | True))


def all_seen(engine: Engine) -> None:
    if not engine.spec.is_chain:
        memory = engine.memory
        engine.runner = AllSeen(
            engine.pair.target, memory.target, memory.target_rope, engine.spec, engine.graphs
        )


def whole_prefix(engine: Engine) -> None:
    """All m rows of a common prefix of m tokens are reused, not m - 1 (F25)."""
    lanes: Any = engine._lanes
    enter = lanes.enter

    def longer(sequence: Any, *rest: Any) -> None:
        enter(sequence, *rest)
        if sequence.committed:
            sequence.committed += 1
            sequence.settled += 1

    lanes.enter = longer


def padding_in_use(engine: Engine) -> None:
    """Padding rows stand at the first slots of a lane, not behind all (F53)."""
    if engine.graphs.fixed:
        lanes, columns = engine.scheduler.batch_size, engine.memory.target.capacity
        engine._inputs = BatchInputs(lanes, engine.pair.device, columns, sink=0)


def test_a_sound_engine_agrees_with_itself(pair: ModelPair) -> None:
    report = probed(pair, None)
    assert report.findings == ()
    assert [r.name for r in report.results if r.agrees] == [n for n in NAMES if n != "ranks"]
    for result in report.results:
        assert (result.largest or 0) <= (result.tolerance or 0) / 30
    assert report.confirmed[-1].endswith("not run: one rank.")


def test_a_sound_engine_with_a_dead_draft_agrees_too(dead: ModelPair) -> None:
    """Guided drafts are accepted, and their rows moved, where the draft's own never would be."""
    report = probed(dead, None, ("speculation", "graphs", "cache"))
    assert report.findings == ()
    told = report.results[-1].compared
    assert " 0 of which" not in told
    assert "and 0 moved" not in told


@pytest.mark.parametrize(
    ("change", "names", "first"),
    [
        (by_name("no_compaction"), ("speculation", "tree", "cache"), "cache"),
        (by_name("no_extend"), ("tree", "cache", "chunks"), "cache"),
        (by_name("wrong_row"), ("tree", "cache", "chunks"), "cache"),
        (by_name("stale_features"), ("tree", "cache"), "cache"),
        (by_name("graph_default"), ("tree", "cache"), "cache"),
        (only_replayed, ("graphs", "cache", "tree"), "graphs"),
        (by_name("siblings_seen"), ("tree", "cache"), "tree"),
        (all_seen, ("tree", "cache"), "tree"),
        (by_name("chunk_border"), ("chunks", "cache", "tree"), "chunks"),
        (whole_prefix, ("prefix", "cache", "chunks"), "prefix"),
        (by_name("late_features"), ("prefix", "cache"), "prefix"),
        (padding_in_use, ("batch", "cache", "graphs"), "batch"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_module_at_fault_is_named_first(
    pair: ModelPair, change: Change, names: tuple[str, ...], first: str
) -> None:
    report = probed(pair, change, names)
    assert accused(report)[0] == first
    found = rank(report.findings)[0]
    assert found.severity is Severity.ERROR
    assert found.evidence[0].where == "first difference"
    assert float(found.figures["position"]) > 0


@pytest.mark.parametrize("name", ["no_compaction", "no_extend", "wrong_row"])
def test_a_dead_draft_hides_nothing(dead: ModelPair, name: str) -> None:
    """Drafts are guided, so keep and extend are seen even where nothing would be accepted."""
    assert accused(probed(dead, by_name(name), ("cache",))) == ["cache"]


def test_wrong_wiring_is_not_accused_here(pair: ModelPair) -> None:
    """Both ways are wired alike: layers off by one are the wiring probe's to find."""
    names = ("speculation", "tree", "cache", "chunks")
    assert accused(probed(pair, by_name("capture_minus_one"), names)) == []


def test_a_wrong_bonus_is_a_fault_of_verify(
    pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_bonus(logits: Tensor, tree: Tree, choosers: Any, *_: object) -> list[Verdict]:
        verdicts = verify(logits, tree, choosers)
        if tree.tokens.shape[1] == 1:
            return verdicts
        return [replace(v, tokens=(*v.tokens[:-1], (v.tokens[-1] + 1) % 250)) for v in verdicts]

    monkeypatch.setattr(engine_module, "verify", other_bonus)
    (found,) = probed(pair, None, ("speculation",)).findings
    assert found.code == "parity.speculation"
    assert "the target's favourite leads by" in found.title
    assert "plain decoding" in found.title


def test_a_way_that_breaks_is_a_disagreement(pair: ModelPair) -> None:
    def breaks(engine: Engine) -> None:
        if engine.graph_mode is not GraphMode.EAGER:
            engine.runner.verify = broken  # type: ignore[method-assign, assignment]

    def broken(*_: object) -> Scores:
        raise EngineError("an input moved.")

    report = probed(pair, breaks, ("graphs", "cache"))
    assert accused(report) == ["graphs"]
    assert "breaks: an input moved." in report.findings[0].title


def test_values_that_are_not_finite_differ(pair: ModelPair) -> None:
    def poisoned(engine: Engine) -> None:
        drafter: Any = engine.drafter
        extend = drafter.extend
        drafter.extend = lambda batch, features, verdicts: extend(
            batch, torch.full_like(features, torch.nan), verdicts
        )

    (found,) = probed(pair, poisoned, ("cache",)).findings
    assert found.figures["largest"] == 2.0


def test_scores_that_are_not_finite_break_a_way(pair: ModelPair) -> None:
    def poisoned(engine: Engine) -> None:
        verified = engine.runner.verify

        def broken(batch: Batch, tree: Tree) -> Scores:
            scores = verified(batch, tree)
            return replace(scores, logits=torch.full_like(scores.logits, torch.nan))

        engine.runner.verify = broken  # type: ignore[method-assign]

    (found,) = probed(pair, poisoned, ("cache",)).findings
    assert "breaks" in found.title
    assert "not finite" in found.title


def test_bad_questions_are_refused(pair: ModelPair) -> None:
    with pytest.raises(ConfigError, match="parity probe 'trees'"):
        probed(pair, None, ("trees",))
    short = [new_request("short", [1, 2, 3])]
    with pytest.raises(WorkloadError, match="long enough"):
        parity_findings(pair, engines(pair), short)

"""The claim must beat every candidate: it does on the shipped pair, and not with a wrong wire."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specbench import demo
from specbench.config import EngineConfig, SpecConfig
from specbench.doctor.wiring import paired_gain, probe_wiring
from specbench.doctor.wiring_candidates import Bounds, search_slots
from specbench.doctor.wiring_served import compare_served
from specbench.engine.engine import Engine
from specbench.engine.faults import inject
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.wiring import Tap
from specbench.request import SamplingParams
from specbench.workload import load_workload

CONFIG = EngineConfig(dtype="float32", kernels="torch")
BOUNDS = Bounds(layers=8, taps=tuple(Tap), target_theta=1e4, own_embedding=False, mapped=True)


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return ModelPair.load(demo.TARGET, demo.DRAFT, CONFIG)


@pytest.fixture(scope="module")
def captured(pair: ModelPair) -> Capture:
    requests = load_workload("default").requests(15, SamplingParams(max_tokens=32))
    ids = ProbeDraft.load(pair, demo.DRAFT).target_ids()
    texts = greedy_texts(pair, requests, past=8)
    return capture(pair, texts, vocab_ids=ids, taps=tuple(Tap))


def edited(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the shipped draft whose config was changed."""
    shutil.copytree(demo.DRAFT, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    return folder


def claims(layers: list[int]) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = layers

    return change


def test_the_healthy_pair_is_not_accused(pair: ModelPair, captured: Capture) -> None:
    verdict = probe_wiring(ProbeDraft.load(pair, demo.DRAFT), captured, BOUNDS, budget=1)
    assert verdict.winner is None
    assert not any(candidate.better for candidate in verdict.ranked)
    assert "15 requests" in verdict.unseen


@pytest.mark.parametrize(
    ("change", "wire"),
    [
        (claims([6, 3, 1]), ""),  # ids are sorted by depth, whatever the order written
        (claims([0, 1, 2]), "slots"),
        (lambda config: config.update(norm_output=True), "norm_output"),
        (lambda config: config.update(norm_before_residual=True), "norm_before_residual"),
    ],
)
def test_a_false_claim_is_named(
    pair: ModelPair,
    captured: Capture,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    wire: str,
) -> None:
    draft = ProbeDraft.load(pair, edited(tmp_path / "draft", change))
    verdict = probe_wiring(draft, captured, BOUNDS, budget=100)
    assert (verdict.winner.change.wire if verdict.winner else "") == wire


@pytest.mark.parametrize(
    ("fault", "layers"),
    [("graph_default", ((2, 4, 7), (2, 4, 5))), ("capture_plus_one", ((3, 5, 8), (3, 5, 8)))],
)
def test_the_rows_fed_name_the_layers(
    pair: ModelPair, captured: Capture, fault: str, layers: tuple[tuple[int, ...], ...]
) -> None:
    engine = Engine(pair, CONFIG)
    engine.configure(SpecConfig.chain(3), 1)
    inject(engine, fault)
    served = compare_served(engine, ProbeDraft.load(pair, demo.DRAFT), captured, BOUNDS)
    assert not served.agrees
    assert tuple(rows.layers for rows in served.rows) == layers
    assert served.alternatives[0][1] == 1.0


def test_a_sound_engine_makes_the_probes_steps(pair: ModelPair, captured: Capture) -> None:
    engine = Engine(pair, CONFIG)
    for steps in (1, 3, 7):
        engine.configure(SpecConfig.chain(steps), 1)
        served = compare_served(engine, ProbeDraft.load(pair, demo.DRAFT), captured, BOUNDS)
        assert served.agreement == 1.0
        assert served.outputs_equal == 1.0


def test_equal_positions_of_one_text_count_once() -> None:
    here, there = np.ones(8), np.zeros(8)
    here[4:] = 0.0
    gain, error = paired_gain(here, there, np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    assert gain == 0.5
    assert error == pytest.approx(0.5)  # two texts, not eight positions
    assert paired_gain(here[:4], there[:4], np.zeros(4, dtype=int))[1] == float("inf")


def test_a_search_over_many_layers_stays_in_its_budget() -> None:
    right, calls = (11, 31, 52), []

    def score(slots: tuple[int, ...]) -> float:
        calls.append(slots)
        return -sum(abs(a - b) for a, b in zip(slots, right, strict=True))

    best, count = search_slots(score, (2, 30, 58), 61, 400)
    assert best == right
    assert count == len(calls) <= 400

"""What a CUDA graph demands, proved without a device: fixed shapes, fixed addresses, no sync."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode, Graphs, Outputs
from specbench.engine.pair import ModelPair
from specbench.engine.verify import verify
from specbench.errors import EngineError
from tests.drive import TREES, drive, new_request, prompts
from tests.reference import Reference
from tests.tiny import shared_pair

SPECS = [
    SpecConfig.baseline(),
    SpecConfig.chain(1),
    SpecConfig.chain(4),
    TREES[0],
    TREES[3],
    TREES[5],
]
CPU = torch.device("cpu")


def engine_in(mode: GraphMode) -> Engine:
    pair, config = shared_pair(), EngineConfig(dtype="float64", max_len=256)
    return Engine(ModelPair.load(pair.target, pair.draft, config), config, mode)


@pytest.fixture(scope="module")
def engines() -> tuple[Engine, Engine]:
    return engine_in(GraphMode.EAGER), engine_in(GraphMode.EMULATED)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.point_id)
def test_replays_give_what_eager_gives(
    engines: tuple[Engine, Engine], spec: SpecConfig, batch_size: int
) -> None:
    """Fixed shapes at full cache length against exact lengths; requests join and leave."""
    results = []
    for engine in engines:
        engine.configure(spec, batch_size)
        asked = [new_request(f"r{i}", p, 12 + 5 * i) for i, p in enumerate(prompts(4))]
        outcomes = drive(engine, asked)
        results.append(
            [(o.ids, [(s.accepted, s.ranks, s.batch) for s in o.steps]) for o in outcomes]
        )
    assert results[0] == results[1]


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.point_id)
def test_padding_is_poisoned_and_does_not_leak(
    engines: tuple[Engine, Engine], spec: SpecConfig
) -> None:
    """Five requests leave one by one, through buckets of 8 (cut at 6), 4, 2 and 1, in over 200
    cycles; everything that padding rows read is NaN before each of them."""
    pair, config = shared_pair(), EngineConfig(dtype="float64", max_len=256, max_batch_size=6)
    eager = Engine(ModelPair.load(pair.target, pair.draft, config), config, GraphMode.EAGER)
    padded = Engine(eager.pair, config, GraphMode.EMULATED)
    asked = [new_request(f"r{i}", p, 12 + 50 * i) for i, p in enumerate(prompts(5))]
    expected = {}
    eager.configure(spec, 6)
    for request, outcome in zip(asked, drive(eager, asked), strict=True):
        expected[request.request_id] = (outcome.ids, [s.ranks for s in outcome.steps])
    padded.configure(spec, 6)
    names = {padded.submit(request): request.request_id for request in asked}
    steps: dict[str, list[tuple[int, ...]]] = {name: [] for name in names.values()}
    seen, cycles = set(), 0
    while not padded.idle:
        running = len(padded.scheduler.running)
        if not padded.scheduler.waiting:
            poison(padded, running)
        emissions = padded.step()
        cycles += any(e.trace is not None for e in emissions)
        for e in emissions:
            if e.trace is not None:
                seen.add(e.trace.batch)
                steps[names[e.handle]].append(e.trace.ranks)
            if e.finish is not None:
                assert (e.output_ids, steps[names[e.handle]]) == expected[names[e.handle]]
                assert e.error is None
    assert seen == {1, 2, 3, 4, 5}
    sizes = {1, 2, 4, 6}
    regions = 1 if spec.is_baseline else 3
    assert padded.graphs.count == regions * len(sizes)
    if spec.is_baseline:
        assert cycles > 200


def poison(engine: Engine, running: int) -> None:
    """NaN in every lane that no sequence holds, and in the draft's state of it."""
    for pool in (engine.memory.target, engine.memory.draft):
        assert pool is not None
        pool.keys[:, running:] = float("nan")
        pool.values[:, running:] = float("nan")
    if isinstance(engine.drafter, Eagle3Drafter):
        engine.drafter._state[running:] = float("nan")
        engine.drafter._scores[running:] = float("nan")


def test_padding_stands_behind_what_can_be_committed() -> None:
    for spec in SPECS:
        engine = engine_in(GraphMode.EMULATED)
        engine.configure(spec, 4)
        rows = [new_request(f"r{i}", [1, 2], 9) for i in range(3)]
        for request in rows:
            engine.submit(request)
        for _ in rows:
            engine.step()
        batch = engine._inputs.batch(engine.scheduler.running)
        assert (batch.size, len(batch.sequences), batch.padding) == (4, 3, 1)
        sink, capacity = batch.start_tensor[3].item(), engine.memory.target.capacity
        assert sink >= engine.max_len
        most = max(spec.num_draft_tokens, (spec.num_steps - 1) * spec.topk, spec.num_steps + 1)
        assert sink + most <= capacity


def test_capture_knows_the_layers_from_the_start() -> None:
    """A graph freezes the layers of its first call (engine-spec 3.6): none is recorded before the
    draft's own ids are the target's, and the features of a replay are of those layers."""
    engine = engine_in(GraphMode.EMULATED)
    engine.configure(SPECS[2], 1)
    draft = engine.pair.draft_spec
    assert draft is not None
    assert engine.graphs.count == 0
    assert engine.pair.target.capture == draft.capture_physical == (1, 2, 3)
    reference = Reference(shared_pair())
    engine.submit(new_request("r", [1, 2, 3], 40))
    for _ in range(4):
        engine.step()
    with torch.inference_mode():
        batch = engine._inputs.batch(engine.scheduler.running)
        features = engine.runner.verify(batch, engine.drafter.propose(batch)).features
    assert engine.graphs.count == 3
    (running,) = engine.scheduler.running
    _, stream = reference.target([*running.prompt, *running.output])
    expected = torch.cat([stream[layer][-1] for layer in (1, 2, 3)])
    torch.testing.assert_close(features[0], expected)


def test_features_of_another_width_are_never_skipped() -> None:
    """SGLang's replay copies features only when the width fits, else runs on stale ones (7.3)."""
    engine = engine_in(GraphMode.EMULATED)
    engine.configure(SPECS[2], 1)
    engine.submit(new_request("r", [1, 2, 3], 40))
    for _ in range(3):
        engine.step()
    with torch.inference_mode():
        batch = engine._inputs.batch(engine.scheduler.running)
        tree = engine.drafter.propose(batch)
        scores = engine.runner.verify(batch, tree)
        verdicts = verify(scores.logits, tree, batch.choosers)
        with pytest.raises(EngineError, match="Static buffers"):
            engine.drafter.extend(batch, scores.features[:, :-1], verdicts)


class Traced(Graphs):
    """Runs every region again with fake tensors, where reading a value raises."""

    def __init__(self) -> None:
        super().__init__(CPU, GraphMode.EMULATED)
        self.shapes: dict[object, list[tuple[int, ...]]] = {}
        self.engine: Engine | None = None

    def run(self, key: object, inputs: object, region: Callable[[], Outputs]) -> Outputs:
        outputs = super().run(key, inputs, region)  # type: ignore[arg-type]
        self._forget_scratch()  # working memory of the fake run must be fake, and go with it
        with FakeTensorMode(allow_non_fake_inputs=True):
            self.shapes[key] = [tuple(t.shape) for t in region()]
        self._forget_scratch()
        return outputs

    def _forget_scratch(self) -> None:
        assert self.engine is not None
        models: list[Any] = [self.engine.pair.target, self.engine.pair.draft]
        for model in models:
            model._scratch._kept.clear()


@pytest.mark.parametrize("spec", [SPECS[0], SPECS[2], SPECS[4]], ids=lambda s: s.point_id)
def test_no_region_reads_a_value(spec: SpecConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Traced()
    monkeypatch.setattr("specbench.engine.engine.Graphs", lambda *_: graphs)
    graphs.engine = engine = engine_in(GraphMode.EMULATED)
    engine.configure(spec, 2)
    for i, prompt in enumerate(prompts(2)):
        engine.submit(new_request(f"r{i}", prompt, 100))
    with torch.no_grad():  # fake tensors cannot stand in for inference tensors
        for _ in range(2):
            engine._step()
        lanes = {key for key in graphs.shapes if isinstance(key, tuple)}
        engine._step()
        engine._step()
    names = {"verify"} if spec.is_baseline else {"verify", "draft", "extend"}
    assert {key[0] for key in graphs.shapes if isinstance(key, tuple)} == names
    assert ("verify", 2) in graphs.shapes
    assert graphs.shapes["verify", 2][0] == (2 * spec.num_draft_tokens, 288)
    assert len(lanes) <= len(graphs.shapes)


def test_reading_a_value_inside_a_region_is_seen() -> None:
    """The proof above can fail."""
    data = torch.ones(3)
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(DataDependentOutputException):
        (data * 2).sum().item()


def test_an_input_that_moves_is_an_error() -> None:
    graphs, fixed = Graphs(CPU, GraphMode.EMULATED), torch.ones(3)
    graphs.run("double", (fixed,), lambda: (fixed * 2,))
    moved = fixed.clone()
    with pytest.raises(EngineError, match="Static buffers"):
        graphs.run("double", (moved,), lambda: (moved * 2,))
    with pytest.raises(EngineError, match="Static buffers"):
        graphs.run("double", (fixed[:2],), lambda: (fixed[:2] * 2,))


def test_an_output_that_changes_its_shape_is_an_error() -> None:
    graphs, data = Graphs(CPU, GraphMode.EMULATED), torch.ones(3)
    sizes = itertools.count(1)

    def region() -> Outputs:
        return (data.repeat(next(sizes)),)

    graphs.run("grow", (data,), region)
    with pytest.raises(EngineError, match="do not depend on data"):
        graphs.run("grow", (data,), region)


def test_outputs_keep_their_address() -> None:
    graphs, data = Graphs(CPU, GraphMode.EMULATED), torch.ones(3)

    def run() -> Tensor:
        return graphs.run("double", (data,), lambda: (data * 2,))[0]

    first = run()
    data.fill_(5)
    assert run() is first
    assert first.tolist() == [10.0] * 3


def test_capture_needs_a_device() -> None:
    with pytest.raises(EngineError, match="cuda"):
        Graphs(CPU, GraphMode.CAPTURED)

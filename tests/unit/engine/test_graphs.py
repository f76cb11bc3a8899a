"""What a CUDA graph demands, proved without a device: fixed shapes, fixed addresses, no sync."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode, Graphs, Outputs
from specbench.engine.pair import ModelPair
from specbench.errors import EngineError
from tests.drive import TREES, drive, new_request, prompts
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
        for model in (self.engine.pair.target, self.engine.pair.draft):
            assert model is not None
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

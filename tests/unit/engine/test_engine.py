"""Exactness of the step loop: whatever is drafted, the tokens are those of plain decoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.batch import Batch
from specbench.engine.drafter import chain_tree
from specbench.engine.engine import Engine
from specbench.engine.tree import Tree, chain_shape
from specbench.engine.verify import Verdict
from specbench.errors import ConfigError, EngineError, RequestError
from specbench.request import Request
from specbench.trace import Finish
from tests.drive import (
    CHAINS,
    TREES,
    Outcome,
    accept_length,
    drive,
    new_engine,
    new_request,
    prompts,
)
from tests.reference import Reference
from tests.tiny import shared_pair


@pytest.fixture(scope="module")
def engine() -> Engine:
    return new_engine()


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return [new_request(f"r{i}", p, max_tokens=20 + 3 * i) for i, p in enumerate(prompts(4))]


@pytest.fixture(scope="module")
def plain(engine: Engine, requests: list[Request]) -> list[Outcome]:
    engine.configure(SpecConfig.baseline(), 1)
    return drive(engine, requests)


def test_plain_decoding_equals_an_independent_model(plain: list[Outcome]) -> None:
    reference = Reference(shared_pair())
    for outcome, prompt in zip(plain[:2], prompts(2), strict=True):
        assert list(outcome.ids) == reference.greedy(prompt, len(outcome.ids))


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("spec", [*CHAINS, *TREES], ids=lambda s: s.point_id)
def test_greedy_tokens_are_those_of_plain_decoding(
    engine: Engine,
    requests: list[Request],
    plain: list[Outcome],
    spec: SpecConfig,
    batch_size: int,
) -> None:
    engine.configure(spec, batch_size)
    outcomes = drive(engine, requests)
    assert [o.ids for o in outcomes] == [o.ids for o in plain]
    assert [o.text for o in outcomes] == [o.text for o in plain]
    assert max(step.batch for o in outcomes for step in o.steps) == batch_size
    for outcome in outcomes:
        trimmed = sum(s.accepted + 1 - s.emitted for s in outcome.steps)
        assert len(outcome.ids) == 1 + sum(s.accepted + 1 for s in outcome.steps) - trimmed
        assert outcome.usage.accepted == sum(s.accepted for s in outcome.steps)
        assert outcome.usage.completion_tokens == len(outcome.ids)


def test_batches_and_single_requests_trace_alike(engine: Engine, requests: list[Request]) -> None:
    traces = []
    for batch_size in (1, 3):
        engine.configure(TREES[3], batch_size)
        outcomes = drive(engine, requests)
        traces.append([[(s.accepted, s.emitted, s.ranks) for s in o.steps] for o in outcomes])
    assert traces[0] == traces[1]
    assert any(accepted >= 2 for steps in traces[0] for accepted, _, _ in steps)


class Scripted:
    """A drafter that proposes a chain taken from a known output, or always something else."""

    def __init__(self, outputs: Mapping[str, Sequence[int]], steps: int, *, right: bool) -> None:
        self._outputs, self._steps, self._right = outputs, steps, right
        self._shape = chain_shape(steps + 1, torch.device("cpu"))

    def propose(self, batch: Batch) -> Tree:
        rows = []
        for sequence in batch.sequences:
            known = self._outputs[sequence.request.request_id]
            ahead = [*known[len(sequence.output) :], *([0] * self._steps)][: self._steps]
            drafts = ahead if self._right else [(token + 1) % 250 for token in ahead]
            rows.append([sequence.last_token, *drafts])
        return chain_tree(torch.tensor(rows), self._shape)

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None: ...
    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None: ...
    def move(self, source: int, target: int, length: int) -> None: ...
    def clear(self, lane: int) -> None: ...


@pytest.mark.parametrize("steps", [1, 4])
def test_an_oracle_draft_reaches_the_bound(
    engine: Engine, requests: list[Request], plain: list[Outcome], steps: int
) -> None:
    known = {f"r{i}": o.ids for i, o in enumerate(plain)}
    longer = [new_request(f"r{i}", p, 1 + 3 * (steps + 1)) for i, p in enumerate(prompts(3))]
    engine.configure(SpecConfig.chain(steps), 3)
    engine.drafter = Scripted(known, steps, right=True)
    outcomes = drive(engine, longer)
    assert accept_length(outcomes) == steps + 1
    assert [o.ids for o in outcomes] == [
        p.ids[: len(o.ids)] for o, p in zip(outcomes, plain[:3], strict=True)
    ]


def test_a_draft_that_is_always_wrong_changes_nothing(
    engine: Engine, requests: list[Request], plain: list[Outcome]
) -> None:
    engine.configure(SpecConfig.chain(3), 2)
    engine.drafter = Scripted({f"r{i}": o.ids for i, o in enumerate(plain)}, 3, right=False)
    outcomes = drive(engine, requests)
    assert accept_length(outcomes) == 1.0
    assert [o.text for o in outcomes] == [o.text for o in plain]


def test_max_tokens_cuts_inside_a_step(engine: Engine, plain: list[Outcome]) -> None:
    engine.configure(SpecConfig.chain(4), 1)
    engine.drafter = Scripted({"r0": plain[0].ids}, 4, right=True)
    (outcome,) = drive(engine, [new_request("r0", prompts(1)[0], 4)])
    assert outcome.ids == plain[0].ids[:4]
    assert outcome.finish is Finish.LENGTH
    assert (outcome.steps[-1].accepted, outcome.steps[-1].emitted) == (4, 3)


def test_a_stop_token_inside_accepted_drafts(engine: Engine, plain: list[Outcome]) -> None:
    ids = plain[0].ids
    stop = next(t for t in ids[2:] if ids.index(t) >= 2)
    at = ids.index(stop)
    engine.configure(SpecConfig.chain(4), 1)
    engine.drafter = Scripted({"r0": ids}, 4, right=True)
    (outcome,) = drive(engine, [new_request("r0", prompts(1)[0], 20, stop_token_ids=(stop,))])
    assert outcome.ids == ids[: at + 1]
    assert outcome.finish is Finish.STOP
    assert outcome.text == engine.pair.codec.decode(ids[:at])


def test_a_stop_string_inside_accepted_drafts(engine: Engine, plain: list[Outcome]) -> None:
    text = plain[2].text
    stop = text[6:9]
    engine.configure(SpecConfig.chain(4), 1)
    engine.drafter = Scripted({"r2": plain[2].ids}, 4, right=True)
    (outcome,) = drive(engine, [new_request("r2", prompts(3)[2], 20, stop=(stop,))])
    assert outcome.text == text[: text.index(stop)]
    assert outcome.finish is Finish.STOP
    assert engine.pair.codec.decode(outcome.ids).startswith(outcome.text + stop)


def test_scores_that_are_not_finite_end_only_that_request(plain: list[Outcome]) -> None:
    engine = new_engine()
    engine.configure(SpecConfig.chain(2), 2)
    poison = 77
    engine.pair.target.embedding[poison] = float("nan")
    bad = new_request("bad", [3, poison, 5])
    good = [new_request(f"r{i}", p, 20 + 3 * i) for i, p in enumerate(prompts(3))]
    outcomes = drive(engine, [good[0], bad, *good[1:]])
    assert outcomes[1].finish is Finish.ERROR
    assert "not finite" in str(outcomes[1].error)
    for outcome, expected in zip([outcomes[0], *outcomes[2:]], plain, strict=False):
        assert outcome.ids == expected.ids


def test_requests_that_cannot_run_are_refused_alone(engine: Engine) -> None:
    engine.configure(SpecConfig.baseline(), 1)
    with pytest.raises(RequestError, match=r"exceed max_len=512"):
        engine.submit(new_request("long", [1] * 500, 24))
    with pytest.raises(RequestError, match=r"outside 0\.\.287"):
        engine.submit(new_request("ids", [1, 288]))
    with pytest.raises(RequestError, match="empty"):
        engine.submit(new_request("none", []))
    assert engine.idle


def test_a_draft_that_knows_fewer_positions_refuses_only_long_requests() -> None:
    engine = new_engine()
    assert engine.pair.draft_spec is not None
    short = dataclasses.replace(engine.pair.draft_spec.rope, max_position=64)
    engine.pair.draft_spec = dataclasses.replace(engine.pair.draft_spec, rope=short)
    engine.configure(SpecConfig.chain(1), 1)
    with pytest.raises(RequestError, match=r"make 65 tokens, the draft's max_position_emb.* 64"):
        engine.submit(new_request("long", [1] * 41, 24))
    assert engine.idle
    assert drive(engine, [new_request("fits", [1] * 40, 24)])[0].finish is Finish.LENGTH
    engine.configure(SpecConfig.baseline(), 1)
    assert drive(engine, [new_request("long", [1] * 41, 24)])[0].finish is Finish.LENGTH


def test_topk_beyond_the_drafts_vocabulary_is_refused_at_start(engine: Engine) -> None:
    wide = SpecConfig(num_steps=1, topk=273, num_draft_tokens=274)
    with pytest.raises(ConfigError, match="topk=273 exceeds the draft's vocabulary of 272"):
        engine.configure(wide, 1)
    engine.configure(SpecConfig.baseline(), 1)


def test_cancelling_frees_the_lane_and_leaves_the_rest_alone(
    engine: Engine, requests: list[Request], plain: list[Outcome]
) -> None:
    engine.configure(TREES[2], 3)
    handles = [engine.submit(request) for request in requests]
    ids: dict[int, tuple[int, ...]] = {}
    for step in range(200):
        if step == 5:
            engine.cancel(handles[0])
            engine.audit()
        ids |= {e.handle: e.output_ids for e in engine.step() if e.finish is not None}
        engine.audit()
        if engine.idle:
            break
    assert engine.slots_in_use == 0
    assert handles[0] not in ids
    assert [ids[h] for h in handles[1:]] == [o.ids for o in plain[1:]]


def test_a_waiting_request_can_be_cancelled(engine: Engine, requests: list[Request]) -> None:
    engine.configure(SpecConfig.baseline(), 1)
    first, second = (engine.submit(request) for request in requests[:2])
    engine.step()
    engine.cancel(second)
    engine.cancel(first)
    engine.cancel(first)
    assert engine.idle


def test_configure_is_refused_while_requests_run(engine: Engine, requests: list[Request]) -> None:
    engine.configure(SpecConfig.baseline(), 1)
    handle = engine.submit(requests[0])
    with pytest.raises(EngineError, match="in flight"):
        engine.configure(SpecConfig.chain(1), 1)
    engine.cancel(handle)
    with pytest.raises(ConfigError, match="max_batch_size=4"):
        engine.configure(SpecConfig.baseline(), 5)


def test_sampling_depends_on_the_seed_and_not_on_the_batch(engine: Engine) -> None:
    asked = [new_request(f"r{i}", p, 16, temperature=1.0, seed=i) for i, p in enumerate(prompts(3))]
    outputs = []
    for batch_size in (1, 3):
        engine.configure(CHAINS[2], batch_size)
        outputs.append([o.ids for o in drive(engine, asked)])
    assert outputs[0] == outputs[1]
    other = new_request("other", prompts(3)[2], 16, temperature=1.0, seed=99)
    assert drive(engine, [other])[0].ids != outputs[0][2]


def test_the_four_parts_of_a_step_are_shared_by_its_batch(
    engine: Engine, requests: list[Request]
) -> None:
    engine.configure(CHAINS[1], 3)
    outcomes = drive(engine, requests)
    by_step: dict[int, set[tuple[int, int, int, int]]] = {}
    for step in (s for o in outcomes for s in o.steps):
        parts = (step.draft_ns, step.extend_ns, step.verify_ns, step.other_ns)
        by_step.setdefault(step.batch_step, set()).add(parts)
        assert step.verify_ns > 0
        assert step.draft_ns > 0
    assert all(len(parts) == 1 for parts in by_step.values())


def test_the_gap_is_that_of_a_plain_forward(engine: Engine, plain: list[Outcome]) -> None:
    reference = Reference(shared_pair())
    tokens = [*prompts(1)[0], *plain[0].ids[:5]]
    first, second = reference.target(tokens)[0][-1].topk(2)[0].tolist()
    request = new_request("gap", prompts(1)[0])
    expected = (first - second) / max(abs(first), 1.0)
    assert engine.top2_gap(request, plain[0].ids[:5]) == pytest.approx(expected, abs=1e-9)

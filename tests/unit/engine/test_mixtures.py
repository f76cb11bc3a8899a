"""Whatever a request shares a batch with, its trace is the one it has alone (engine-spec T14, T15).

Requests join while others prefill, leave and are cancelled, prompts are cut in chunks of any size,
and start from what earlier requests left in the lanes. Float64: no difference has an excuse.
"""

from __future__ import annotations

import functools
import random

import pytest

from specbench.config import SpecConfig
from specbench.engine.engine import Engine
from specbench.engine.graphs import GraphMode
from specbench.request import Request
from specbench.trace import Finish
from tests.drive import TREES, Outcome, drive, new_engine, new_request

SPECS = [SpecConfig.baseline(), SpecConfig.chain(3), TREES[3]]
CHUNKS = [1, 3, 7, 256]
Trace = tuple[tuple[int, ...], list[tuple[int, tuple[int, ...]]]]


def asked(seed: int = 0) -> list[Request]:
    """Requests of mixed lengths, several of which share the beginning of their prompt.

    Some are sampled, each under its own filters and seed, and some may stop anywhere in a step.
    """
    coins = random.Random(seed)
    stem = [coins.randrange(250) for _ in range(40)]
    found = []
    for i in range(9):
        prompt = [*stem[: coins.choice((0, 5, 33, 40))], *(coins.randrange(250) for _ in range(i))]
        sampling: dict[str, object] = {}
        if i % 3 == 1:
            sampling |= {"temperature": 0.8, "top_k": 3 * i, "top_p": 0.95, "seed": 50 + i}
        if i % 2 == 0:
            sampling["stop_token_ids"] = tuple(range(i, 250, 5))
        found.append(new_request(f"r{i}", prompt or [7], coins.randint(1, 24), **sampling))
    found.append(new_request("same", stem, 12))
    found.append(new_request("again", stem, 12))
    return found


def trace_of(outcome: Outcome) -> Trace:
    return outcome.ids, [(step.accepted, step.ranks) for step in outcome.steps]


@functools.cache
def alone(spec: SpecConfig) -> dict[str, Trace]:
    """Each request by itself, cold, its prompt whole."""
    engine, found = new_engine(), {}
    for request in asked():
        engine.configure(spec, 1)
        found[request.request_id] = trace_of(drive(engine, [request])[0])
    return found


@functools.cache
def engine_with(chunk: int, reuse: bool) -> Engine:
    return new_engine(prefill_chunk=chunk, prefix_reuse=reuse)


def storm(engine: Engine, requests: list[Request], coins: random.Random) -> dict[str, Outcome]:
    """Submit at random moments, cancel some in any state, and audit after every step."""
    todo, names = list(requests), dict[int, str]()
    outcomes, doomed = dict[int, Outcome](), dict[int, int]()
    while todo or not engine.idle:
        if todo and coins.random() < 0.4:
            request = todo.pop()
            handle = engine.submit(request)
            names[handle] = request.request_id
            outcomes[handle] = Outcome()
            if coins.random() < 0.25:
                doomed[handle] = coins.randint(0, 12)  # steps until its client goes away
        for handle in [handle for handle, steps in doomed.items() if steps == 0]:
            engine.cancel(handle)
            engine.audit()
            if outcomes[handle].finish is None:
                del outcomes[handle]
        doomed = {handle: steps - 1 for handle, steps in doomed.items() if steps}
        for emission in engine.step():
            seen = outcomes[emission.handle]
            if emission.trace is not None:
                seen.steps.append(emission.trace)
            if emission.finish is not None:
                seen.finish, seen.ids = emission.finish, emission.output_ids
                seen.usage, seen.error = emission.usage, emission.error
        engine.audit()
        assert len(engine.scheduler.holders) <= engine.scheduler.batch_size
    assert engine.slots_in_use == 0
    return {names[handle]: outcome for handle, outcome in outcomes.items()}


@pytest.mark.parametrize("reuse", [False, True], ids=["cold", "reuse"])
@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.point_id)
def test_any_mixture_traces_as_each_request_alone(
    spec: SpecConfig, chunk: int, reuse: bool
) -> None:
    engine, coins = engine_with(chunk, reuse), random.Random(chunk)
    for batch_size in (1, 2, 4):
        engine.configure(spec, batch_size)
        for _ in range(2):  # the second time on lanes that hold something
            requests = asked()
            coins.shuffle(requests)
            outcomes = storm(engine, requests, coins)
            assert len(outcomes) >= 4
            for name, outcome in outcomes.items():
                assert trace_of(outcome) == alone(spec)[name], (name, batch_size)


def test_hits_are_counted_and_the_border_row_is_read_again() -> None:
    engine = new_engine(prefix_reuse=True)
    engine.configure(SpecConfig.chain(3), 2)
    prompt = [(j * 7) % 250 for j in range(50)]
    first = drive(engine, [new_request("a", prompt, 9)])[0]
    second = drive(engine, [new_request("b", prompt, 9)])[0]
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 49)
    assert trace_of(first) == trace_of(second)
    other = [*prompt[:20], 249, 248, 247]
    (third,) = drive(engine, [new_request("c", other, 9)])
    assert third.usage.cached_tokens == 19  # row 19 pairs with token 20, which differs
    # the conversation goes on: output of the first turn is part of the next prompt
    turn = [*prompt, *first.ids, 3, 4]
    (fourth,) = drive(engine, [new_request("d", turn, 9)])
    assert fourth.usage.cached_tokens is not None
    assert 50 <= fourth.usage.cached_tokens < 50 + len(first.ids)


def test_without_reuse_nothing_is_said_of_hits() -> None:
    engine = new_engine()
    assert drive(engine, [new_request("a", [1, 2], 2)])[0].usage.cached_tokens is None


def test_a_long_prompt_does_not_stop_the_others() -> None:
    """Between two chunks of it, every running sequence makes a step."""
    engine = new_engine(prefill_chunk=8)
    engine.configure(SpecConfig.chain(2), 2)
    short = engine.submit(new_request("short", [1, 2], 200))
    engine.step()
    engine.submit(new_request("long", [5] * 81, 4))
    order = ["step" if any(e.trace for e in engine.step()) else "chunk" for _ in range(20)]
    assert order == ["chunk", "step"] * 10
    engine.cancel(short)
    while not engine.idle:
        engine.step()


def test_short_prompts_share_the_tokens_of_a_chunk() -> None:
    engine = new_engine(prefill_chunk=8)
    engine.configure(SpecConfig.baseline(), 4)
    for i in range(4):
        engine.submit(new_request(f"r{i}", [i + 1] * 4, 20))
    kinds = ["step" if any(e.trace for e in engine.step()) else "chunk" for _ in range(6)]
    assert kinds == ["chunk", "chunk", "step", "chunk", "chunk", "step"]
    while not engine.idle:
        engine.step()


@pytest.mark.parametrize("reuse", [False, True], ids=["cold", "reuse"])
@pytest.mark.parametrize("mode", [GraphMode.EAGER, GraphMode.EMULATED])
def test_nothing_leaks_in_a_storm_of_bad_requests(mode: GraphMode, reuse: bool) -> None:
    """Requests whose scores are NaN fail alone; lanes, slots and draft state come back."""
    good = alone(SpecConfig.chain(3))
    engine = new_engine(prefix_reuse=reuse, prefill_chunk=5)
    engine = Engine(engine.pair, engine.config, mode)
    poison = 286
    assert all(poison not in ids for ids, _ in good.values())
    engine.pair.target.embedding[poison] = float("nan")
    engine.configure(SpecConfig.chain(3), 3)
    coins = random.Random(11)
    for seed in range(4):
        bad = [new_request(f"bad{i}", [1] * (4 * i) + [poison, 5], 9) for i in range(5)]
        requests = [*asked(), *bad]
        coins.shuffle(requests)
        outcomes = storm(engine, requests, coins)
        failed = [o for name, o in outcomes.items() if name.startswith("bad")]
        assert failed, seed
        assert all(o.finish is Finish.ERROR and "not finite" in str(o.error) for o in failed)
        for name, outcome in outcomes.items():
            if not name.startswith("bad"):
                assert trace_of(outcome) == good[name], name
    for pool in (engine.memory.target, engine.memory.draft):
        assert pool is not None
        assert bool(pool.keys.isfinite().all() and pool.values.isfinite().all())

"""One block: configured, warmed up, measured, and warm-up left out."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from specbench.backends.base import Event
from specbench.backends.sglang import SGLangBackend
from specbench.backends.two_servers import TwoServers
from specbench.config import EngineConfig, LoadConfig, SpecConfig
from specbench.errors import BackendError, ConfigError
from specbench.request import Request, SamplingParams
from specbench.run import (
    check_wording,
    engine_state,
    inprocess_backend,
    remote_backend,
    run_block,
    server_backend,
)
from specbench.trace import ArmRun, Chunk, Finish, RequestTrace, StepTrace
from specbench.workload import load_workload
from tests import tiny
from tests.fakes import FakeBackend


def requests_of(count: int) -> list[Request]:
    return [
        Request(
            request_id=f"r{i}",
            prompt=f"prompt {i}",
            prompt_id=f"p{i}",
            sampling=SamplingParams(max_tokens=5, seed=i),
        )
        for i in range(count)
    ]


def block_of(backend: FakeBackend, *, warmup: int = 0, batch_size: int = 2) -> ArmRun:
    arm, caveats = asyncio.run(
        run_block(
            backend,
            spec=SpecConfig.chain(3),
            workload="w",
            temperature=0.0,
            batch_size=batch_size,
            block=1,
            requests=requests_of(5),
            load=LoadConfig(),
            warmup=warmup,
        )
    )
    assert caveats == ()
    return arm


class Shared(FakeBackend):
    async def other_traffic(self) -> str:
        assert self.in_flight == 0
        return "someone else" if len(self.sent) == 5 else ""


def test_others_on_the_server_are_held_against_the_block() -> None:
    _, caveats = asyncio.run(
        run_block(
            Shared(),
            spec=SpecConfig.chain(3),
            workload="w",
            temperature=0.0,
            batch_size=2,
            block=1,
            requests=requests_of(5),
            load=LoadConfig(),
            warmup=0,
        )
    )
    assert [(c.code, c.text) for c in caveats] == [("other_traffic", "someone else")]


def test_a_block_holds_its_requests_without_the_warm_up() -> None:
    backend = FakeBackend()
    arm = block_of(backend, warmup=2)

    assert backend.points == [(SpecConfig.chain(3), 2)]
    assert len(backend.sent) == 7
    assert [t.request.request_id for t in arm.requests] == ["r0", "r1", "r2", "r3", "r4"]
    assert (arm.point_id, arm.batch_size, arm.block) == ("k3", 2, 1)
    assert arm.wall_ns > 0


def test_the_batch_size_is_what_is_in_flight() -> None:
    backend = FakeBackend()
    block_of(backend, batch_size=3)
    assert backend.most_in_flight == 3


def test_a_failed_request_is_kept_as_failed() -> None:
    arm = block_of(FakeBackend(fails={"r2": BackendError("No slot is free.")}))

    failed = [t for t in arm.requests if t.finish is Finish.ERROR]
    assert [t.request.request_id for t in failed] == ["r2"]
    assert "No slot is free" in failed[0].error
    assert len(arm.requests) == 5


class TrustingBackend(FakeBackend):
    """A backend of a server that does not say what it runs."""

    notes = ("The server does not say its num_steps.",)


def test_what_a_server_does_not_say_becomes_a_caveat() -> None:
    _, caveats = asyncio.run(
        run_block(
            TrustingBackend(),
            spec=SpecConfig.chain(3),
            workload="w",
            temperature=0.0,
            batch_size=1,
            block=0,
            requests=requests_of(2),
            load=LoadConfig(),
            warmup=0,
        )
    )
    assert [(c.code, c.text) for c in caveats if c.code != "client_saturated"] == [
        ("server_settings", "The server does not say its num_steps.")
    ]


def test_an_unknown_kind_of_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="auto, openai or sglang"):
        remote_backend("http://127.0.0.1:1", "triton", api_key=None)


def test_a_second_server_makes_one_backend_of_two() -> None:
    one, two = "http://127.0.0.1:1", "http://127.0.0.1:2"
    assert isinstance(server_backend(one, None, "sglang", api_key=None), SGLangBackend)
    assert isinstance(server_backend(one, two, "auto", api_key=None, model="m"), TwoServers)
    with pytest.raises(ConfigError, match="both"):
        server_backend(one, f"{one}/v1", "auto", api_key=None)
    with pytest.raises(ConfigError, match="names no model"):
        server_backend(one, two, "sglang", api_key=None, model="m")


def test_messages_are_refused_where_only_plain_text_goes() -> None:
    talk, raw = load_workload("default"), load_workload("synthetic:8x2")
    plain = replace(raw, prompts=tuple(replace(p, raw=True) for p in raw.prompts))
    check_wording("auto", [talk])
    check_wording("openai", [talk])
    check_wording("sglang", [plain])
    with pytest.raises(ConfigError, match=r"--workload default.*--backend openai"):
        check_wording("sglang", [plain, talk])
    mixed = replace(raw, name="mixed", prompts=(plain.prompts[0], raw.prompts[1]))
    with pytest.raises(ConfigError, match="mixed"):
        check_wording("sglang", [mixed])


class Log:
    """A watch that writes down what it sees."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Event]] = []
        self.traces: list[RequestTrace] = []

    def event(self, request: Request, event: Event) -> None:
        self.events.append((request.request_id, event))

    def trace(self, trace: RequestTrace) -> None:
        self.traces.append(trace)


def test_watches_see_every_event_of_the_measured_requests() -> None:
    first, second = Log(), Log()
    arm, _ = asyncio.run(
        run_block(
            FakeBackend(),
            spec=SpecConfig.chain(3),
            workload="w",
            temperature=0.0,
            batch_size=2,
            block=0,
            requests=requests_of(3),
            load=LoadConfig(),
            warmup=1,
            watches=[first, second],
        )
    )
    assert first.events == second.events
    assert [t.warmup for t in first.traces] == [True, False, False, False]
    assert set(first.traces[1:]) == set(arm.requests)
    for trace in arm.requests:
        seen = [e for name, e in first.events if name == trace.request.request_id]
        assert tuple(e for e in seen if isinstance(e, StepTrace)) == trace.steps
        assert tuple(e for e in seen if isinstance(e, Chunk)) == trace.chunks


def test_the_state_of_an_engine_in_this_process_can_be_read() -> None:
    pair = tiny.shared_pair()
    config = EngineConfig(dtype="float32", max_batch_size=2, max_len=64)

    async def run() -> None:
        backend = inprocess_backend(pair.target, pair.draft, config)
        await backend.open()
        try:
            state = engine_state(backend)
            assert state is not None
            idle = state()
            assert (idle.running, idle.queued, idle.kv_used) == (0, 0, 0)
            assert idle.kv_slots >= 2 * 64
            async with aclosing(backend.stream(requests_of(1)[0])) as events:
                await anext(events)
                assert state().running == 1
                assert state().kv_used > 0
        finally:
            await backend.close()

    asyncio.run(run())
    assert engine_state(FakeBackend()) is None

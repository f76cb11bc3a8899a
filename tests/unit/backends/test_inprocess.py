"""The engine behind the backend protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from specbench.backends.base import Backend, Event, Finished, GapProbe
from specbench.backends.inprocess import InProcessBackend
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.memory import Memory
from specbench.errors import ConfigError, EngineError, RequestError, UsageError
from specbench.request import Message, Request, SamplingParams
from specbench.trace import Chunk, Evidence, Finish, StepTrace
from tests.drive import new_request, prompts
from tests.tiny import shared_pair

Use = Callable[[InProcessBackend], Awaitable[None]]


def run(use: Use) -> None:
    async def main() -> None:
        pair = shared_pair()
        backend = InProcessBackend(
            pair.target, pair.draft, EngineConfig(dtype="float64", max_len=512)
        )
        await backend.open()
        try:
            await use(backend)
        finally:
            await backend.close()
        assert not torch.is_inference_mode_enabled()

    asyncio.run(main())


async def collect(backend: InProcessBackend, request: Request) -> list[Event]:
    return [event async for event in backend.stream(request)]


def test_it_is_a_backend_and_a_gap_probe() -> None:
    backend: Backend = InProcessBackend("nowhere")
    assert isinstance(backend, GapProbe)
    assert backend.evidence is Evidence.STEPS


def test_a_stream_is_a_chunk_then_steps_with_chunks_then_the_end() -> None:
    async def use(backend: InProcessBackend) -> None:
        await backend.configure(SpecConfig.chain(3), 2)
        streams = await asyncio.gather(
            *(collect(backend, new_request(f"r{i}", p, 16)) for i, p in enumerate(prompts(3)))
        )
        for events in streams:
            first, *middle, last = events
            assert isinstance(first, Chunk)
            assert first.tokens == 1
            assert isinstance(last, Finished)
            assert last.finish is Finish.LENGTH
            kinds = [type(event) for event in middle]
            assert kinds == [StepTrace, Chunk] * (len(middle) // 2)
            emitted = [event.emitted for event in middle if isinstance(event, StepTrace)]
            chunks = [event for event in events if isinstance(event, Chunk)]
            assert [chunk.tokens for chunk in chunks[1:]] == emitted
            assert last.output_ids is not None
            assert sum(chunk.tokens or 0 for chunk in chunks) == len(last.output_ids) == 16
            assert [c.at_ns for c in chunks] == sorted(c.at_ns for c in chunks)
            assert last.usage.verify_steps == len(emitted)
            text = backend.engine.pair.codec.decode(last.output_ids)
            assert "".join(chunk.text for chunk in chunks) == text
        assert backend.engine.idle

    run(use)


def test_closing_a_stream_frees_its_lane() -> None:
    async def use(backend: InProcessBackend) -> None:
        await backend.configure(SpecConfig.chain(2), 1)
        stream = backend.stream(new_request("r", prompts(1)[0], 300))
        async for event in stream:
            if isinstance(event, StepTrace):
                break
        await stream.aclose()
        assert backend.engine.idle
        assert backend.engine.slots_in_use == 0
        await backend.configure(SpecConfig.baseline(), 1)

    run(use)


def test_closing_a_stream_in_its_prompt_frees_its_lane_before_the_next_step() -> None:
    async def use(backend: InProcessBackend) -> None:
        engine = backend.engine
        engine.config = replace(engine.config, prefill_chunk=4)
        await backend.configure(SpecConfig.chain(2), 2)
        other = asyncio.create_task(collect(backend, new_request("other", [1, 2], 30)))
        gone = asyncio.create_task(collect(backend, new_request("gone", [3] * 300, 9)))
        for _ in range(20):  # in the middle of its prompt: it takes 75 chunks
            await asyncio.sleep(0)
        assert engine.scheduler.filling is not None
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert len(engine.scheduler.holders) <= 1
        engine.audit()
        assert isinstance((await other)[-1], Finished)
        assert engine.slots_in_use == 0

    run(use)


def test_a_bad_request_fails_alone() -> None:
    async def use(backend: InProcessBackend) -> None:
        await backend.configure(SpecConfig.baseline(), 2)
        good = asyncio.create_task(collect(backend, new_request("good", prompts(1)[0], 8)))
        with pytest.raises(RequestError, match="exceed max_len"):
            await collect(backend, new_request("bad", [1] * 600))
        assert isinstance((await good)[-1], Finished)

    run(use)


def test_configure_needs_an_idle_engine_and_a_fitting_batch() -> None:
    async def use(backend: InProcessBackend) -> None:
        stream = backend.stream(new_request("r", prompts(1)[0], 50))
        await anext(stream)
        with pytest.raises(EngineError, match="in flight"):
            await backend.configure(SpecConfig.chain(1), 1)
        await stream.aclose()
        with pytest.raises(ConfigError, match="max_batch_size"):
            await backend.configure(SpecConfig.chain(1), 99)

    run(use)


def test_messages_and_stop_strings() -> None:
    async def use(backend: InProcessBackend) -> None:
        await backend.configure(SpecConfig.baseline(), 1)
        asked = (Message(role="user", content="hello"),)
        params = SamplingParams(max_tokens=12)
        events = await collect(backend, Request(request_id="m", messages=asked, sampling=params))
        assert isinstance(events[-1], Finished)
        assert events[-1].usage.prompt_tokens == 8

    run(use)


def test_facts_name_what_runs() -> None:
    async def use(backend: InProcessBackend) -> None:
        facts = await backend.open()
        assert facts.backend == "inprocess"
        assert facts.device["capture_physical"] == "1,2,3"
        assert facts.device["attention"] == "bmm+softmax"
        assert facts.max_len == 512
        assert facts.end_ids == (287,)

    run(use)


def test_an_engine_that_breaks_tells_every_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(backend: InProcessBackend) -> None:
        def broken() -> None:
            raise EngineError("a slot was lost.")

        monkeypatch.setattr(backend.engine, "step", broken)
        for _ in range(2):
            with pytest.raises(EngineError, match="a slot was lost"):
                await collect(backend, new_request("r", prompts(1)[0]))

    run(use)


def test_wrong_folders_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        asyncio.run(InProcessBackend(tmp_path / "nothing").open())
    with pytest.raises(EngineError, match="not open"):
        _ = InProcessBackend(tmp_path).engine


def test_memory_that_is_not_there_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is torch's own, of an allocation that no machine can serve."""

    async def use(backend: InProcessBackend) -> None:
        monkeypatch.setattr(Memory, "ensure", lambda *_: torch.zeros(10**15))
        with pytest.raises(ConfigError, match="memory does not suffice"):
            await backend.configure(SpecConfig.chain(2), 1)

    run(use)

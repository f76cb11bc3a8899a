"""What the caches hold does not depend on where a prompt was cut, or on where it came from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specbench.config import SpecConfig
from specbench.engine.engine import Engine
from tests.drive import drive, new_engine, new_request

PROMPT = [(j * 7 + 3) % 250 for j in range(29)]


def rows(engine: Engine) -> list[Tensor]:
    """Keys and values of target and draft for the prompt, once it has been read."""
    engine.submit(new_request("r", PROMPT, 9))
    while not engine.scheduler.running:
        engine.step()
    (running,) = engine.scheduler.running
    found = []
    for pool in (engine.memory.target, engine.memory.draft):
        assert pool is not None
        found += [kept[:, 0, :, : running.committed].clone() for kept in (pool.keys, pool.values)]
    engine.cancel(running.handle)
    return found


@pytest.fixture(scope="module")
def whole() -> list[Tensor]:
    engine = new_engine()
    engine.configure(SpecConfig.chain(3), 1)
    return rows(engine)


@pytest.mark.parametrize("chunk", [1, 2, 7, 28])
def test_chunks_leave_the_same_rows(chunk: int, whole: list[Tensor]) -> None:
    """Engine-spec T13; the row at a border holds the next prompt token (2.8)."""
    engine = new_engine(prefill_chunk=chunk)
    engine.configure(SpecConfig.chain(3), 1)
    for got, expected in zip(rows(engine), whole, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("tokens", range(1, 14))
def test_a_conversation_goes_on_from_rows_that_are_whole(tokens: int) -> None:
    """The last step of a request extends no draft: what it kept must not be taken for rows."""
    warm, cold = new_engine(prefix_reuse=True), new_engine()
    found = []
    for engine in (warm, cold):
        engine.configure(SpecConfig.chain(3), 1)
        (first,) = drive(engine, [new_request("first", PROMPT, tokens)])
        turn = [*PROMPT, *first.ids, 3, 4]
        engine.submit(new_request("second", turn, 9))
        while not engine.scheduler.running:
            engine.step()
        pool, (running,) = engine.memory.draft, engine.scheduler.running
        assert pool is not None
        found.append([kept[:, 0, :, : len(turn)].clone() for kept in (pool.keys, pool.values)])
        cached = running.cached_tokens
        engine.cancel(running.handle)
        assert (cached or 0) >= (len(PROMPT) - 1 if engine is warm else 0)
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("shared", [0, 1, 2, 12, 28, 29])
def test_a_prefix_that_was_kept_gives_the_same_rows(shared: int, whole: list[Tensor]) -> None:
    """Engine-spec 2.7: the last row that two prompts share is another one in each."""
    engine = new_engine(prefix_reuse=True)
    engine.configure(SpecConfig.chain(3), 1)
    other = [*PROMPT[:shared], 251, 252]
    (before,) = drive(engine, [new_request("before", other, 5)])
    assert before.usage.cached_tokens == 0
    for got, expected in zip(rows(engine), whole, strict=True):
        torch.testing.assert_close(got, expected)
    again = drive(engine, [new_request("again", PROMPT, 5)])[0]
    assert again.usage.cached_tokens == len(PROMPT) - 1

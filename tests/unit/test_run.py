"""One block: configured, warmed up, measured, and warm-up left out."""

from __future__ import annotations

import asyncio

import pytest

from specbench.config import LoadConfig, SpecConfig
from specbench.errors import BackendError, ConfigError
from specbench.request import Request, SamplingParams
from specbench.run import remote_backend, run_block
from specbench.trace import ArmRun, Finish
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

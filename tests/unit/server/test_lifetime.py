"""What is checked before models are loaded; the signals are tested in e2e/test_service.py."""

from __future__ import annotations

import asyncio
import io

import pytest

from specbench.errors import ConfigError
from specbench.serve_config import ServeConfig
from specbench.server.lifetime import run_service
from specbench.server.logs import JsonLog
from tests.fakes import FakeBackend


@pytest.mark.parametrize(
    ("config", "opened"),
    [(ServeConfig(host="0.0.0.0"), 0), (ServeConfig(host="no.such.host.invalid"), 0)],
)
def test_an_address_that_cannot_be_used_is_refused_before_models_are_loaded(
    config: ServeConfig, opened: int
) -> None:
    backend, out = FakeBackend(), io.StringIO()
    service = run_service(
        backend, config, api_key=None, log=JsonLog(out), started=lambda _: pytest.fail("started")
    )
    with pytest.raises(ConfigError):
        asyncio.run(service)
    assert backend.opened == opened
    assert out.getvalue() == ""


def test_a_point_that_the_engine_refuses_closes_it_again() -> None:
    class Refuses(FakeBackend):
        async def configure(self, spec: object, batch_size: int) -> None:
            raise ConfigError("no draft")

    backend = Refuses()
    service = run_service(
        backend,
        ServeConfig(port=0),
        api_key=None,
        log=JsonLog(io.StringIO()),
        started=lambda _: pytest.fail("started"),
    )
    with pytest.raises(ConfigError, match="no draft"):
        asyncio.run(service)
    assert backend.closed == 1

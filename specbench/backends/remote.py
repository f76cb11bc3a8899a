"""What every backend behind a network address has in common: opening, claims, configuration."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, replace

from specbench.backends.base import BackendFacts
from specbench.backends.claims import ServerClaims, ask_server
from specbench.backends.http import HttpSession, StatusError
from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.trace import Evidence

_BUSY_POLL_S = 0.05


class RemoteBackend:
    """Base of the HTTP backends; a subclass adds ``stream`` and the name of its protocol.

    ``busy_wait_s`` is how long ``configure`` waits for our own server to become idle: a request
    that was cancelled here may take a moment to end there.

    Args:
        url: base address of the server, with or without ``/v1``.
        api_key: bearer token; never stored in facts.
    """

    protocol = ""

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        self._http = HttpSession(url, api_key=api_key)
        self._claims = ServerClaims()
        self._notes: tuple[str, ...] = ()
        self.busy_wait_s = 5.0

    @property
    def evidence(self) -> Evidence:
        """The strongest evidence that this kind of server can give; known after ``open``."""
        return self._claims.best_evidence

    @property
    def claims(self) -> ServerClaims:
        """What the server says of itself; known after ``open``."""
        return self._claims

    @property
    def notes(self) -> tuple[str, ...]:
        """Reservations about the point set last, one sentence each, to be printed as caveats."""
        return self._notes

    async def open(self) -> BackendFacts:
        """Connect and ask the server what it is.

        Raises:
            UnreachableError: nothing answers at the address.
            BackendError: the server answers with an error.
        """
        await self._http.open()
        self._claims = await ask_server(self._http)
        claims = self._claims
        server = f"{claims.server or 'unknown'} {claims.version}".strip()
        return BackendFacts(
            backend=self.protocol,
            target=claims.target,
            draft=claims.draft,
            device={"server": server, "url": self._http.url, **claims.device},
            inputs=claims.inputs,
            max_len=claims.max_len,
            caveats=claims.caveats,
        )

    async def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """Make sure that the server runs ``spec``; see ``notes`` for what is taken on trust.

        Our own server is switched (``POST /specbench/configure``), which it does only while no
        request is in flight. Any other server fixes its point at launch.

        Raises:
            ConfigError: the server runs another point.
            BackendError: our own server refused, for instance because it is busy.
        """
        if self._claims.configurable:
            await self._switch(spec, batch_size)
            self._claims = replace(self._claims, spec=spec, batch_size=batch_size)
        self._notes = self._claims.check(spec, batch_size)

    async def _switch(self, spec: SpecConfig, batch_size: int) -> None:
        """Ask our own server to run ``spec``, again and again while it is busy."""
        give_up_ns = time.perf_counter_ns() + round(self.busy_wait_s * 1e9)
        while True:
            try:
                await self._http.post_json(
                    "/specbench/configure", {**asdict(spec), "batch_size": batch_size}
                )
            except StatusError as refused:
                if refused.status == 400:
                    raise ConfigError(refused.what) from None
                if refused.status != 409 or time.perf_counter_ns() >= give_up_ns:
                    raise
                await asyncio.sleep(_BUSY_POLL_S)
            else:
                return

    async def close(self) -> None:
        """Close the connections; never raises."""
        await self._http.close()

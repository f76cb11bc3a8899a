"""What every backend behind a network address has in common: claims, configuration, events.

A protocol is how a request is worded (``_ask``) and how its events are read (``Answer``).
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, replace
from typing import Any, Protocol

from specbench.backends.base import BackendFacts, Event, Finished
from specbench.backends.claims import ServerClaims, ask_server
from specbench.backends.http import HttpSession, StatusError
from specbench.backends.traffic import Traffic, read_counters
from specbench.config import SpecConfig
from specbench.errors import ConfigError, SpecbenchError
from specbench.request import Request
from specbench.trace import Chunk, Evidence, Usage

_BUSY_POLL_S = 0.05
_BUSY_LOOKS = 10


class Answer(Protocol):
    """Reads the stream of one request."""

    def read(self, at_ns: int, payload: bytes) -> Chunk | None:
        """One event; a Chunk when it delivered something.

        Raises:
            BackendError: it is none, or the server's report that the request failed.
        """
        ...

    def end(self) -> Iterator[Event]:
        """The events that follow from the whole stream: steps, then Finished.

        Raises:
            BackendError: the stream ended before its request did, or its counts are none.
        """
        ...


class RemoteBackend(ABC):
    """Base of the HTTP backends; a subclass words requests, reads events and names its protocol.

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
        self._found = self._claims
        self._switched = False
        self._left: tuple[str, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._spec: SpecConfig | None = None
        self._traffic = Traffic()
        self._has_metrics = True
        self.busy_wait_s = 5.0

    @property
    def evidence(self) -> Evidence:
        """The strongest evidence that this kind of server can give; known after ``open``."""
        return self._claims.best_evidence

    @property
    def url(self) -> str:
        """The server's base address."""
        return self._http.url

    @property
    def claims(self) -> ServerClaims:
        """What the server says of itself; known after ``open``."""
        return self._claims

    @property
    def notes(self) -> tuple[str, ...]:
        """Reservations about the point set last, one sentence each, to be printed as caveats."""
        return self._notes

    @property
    def left(self) -> tuple[str, ...]:
        """After ``close``: in what state our own server was left, where it is not as found."""
        return self._left

    async def open(self) -> BackendFacts:
        """Connect and ask the server what it is.

        Raises:
            UnreachableError: nothing answers at the address.
            BackendError: the server answers with an error.
        """
        await self._http.open()
        claims = self._claims = self._found = await ask_server(self._http)
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
        request is in flight; ``close`` puts it back. Any other server fixes its point at launch.

        Raises:
            ConfigError: the server runs another point.
            BackendError: our own server refused, for instance because it is busy.
        """
        if self._claims.configurable:
            before, self._switched = self._switched, True
            try:
                await self._switch(spec, batch_size)
            except (ConfigError, StatusError) as refused:
                if isinstance(refused, ConfigError) or refused.status == 409:
                    self._switched = before
                raise
            self._claims = replace(self._claims, spec=spec, batch_size=batch_size)
        self._notes = self._claims.check(spec, batch_size)
        self._spec = spec

    def refused(self, asked: Sequence[SpecConfig]) -> Mapping[SpecConfig, str]:
        """Those of ``asked`` that the server cannot run, with the reasons; known after ``open``.

        Raises:
            ConfigError: as in ``ServerClaims.refused``.
        """
        return self._claims.refused(asked)

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

    async def _put_back(self) -> None:
        """Let our own server run again what it ran when it was found, or may do so still.

        Never raises: what fails is told by ``left``.
        """
        spec, batch_size = self._found.spec, self._found.batch_size
        if not self._switched or spec is None or batch_size is None:
            return
        try:
            await self._switch(spec, batch_size)
            self._claims, self._switched = self._found, False
        except SpecbenchError as error:
            self._left = (
                f"the server at {self.url} may not run {spec.point_id} with batch size "
                f"{batch_size} again, as before this run: {error}",
            )

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Send ``request``; steps come at the end, since only our own server gives them.

        Raises:
            ConfigError: the protocol has no word for the request.
            BackendError: the server refused or failed it, or its stream makes no sense.
            UnreachableError: nothing answers.
        """
        path, body = self._ask(request)
        answer, told = self._new_answer(), None
        try:
            async with aclosing(self._http.post_events(path, body)) as arrivals:
                async for at_ns, payloads in arrivals:
                    for payload in payloads:
                        chunk = answer.read(at_ns, payload)
                        if chunk is not None:
                            yield chunk
            for event in answer.end():
                if isinstance(event, Finished):
                    told = event.usage.completion_tokens
                    self._note_drafts(event.usage)
                yield event
        finally:
            self._traffic.answered(told)

    def _note_drafts(self, usage: Usage) -> None:
        """Note a server that drafts more a step than the point that it is trusted to run."""
        if self._spec is None or self._spec.is_baseline or usage.drafted is None:
            return
        nodes = self._spec.num_draft_tokens - 1
        if usage.verify_steps and usage.drafted > nodes * usage.verify_steps:
            point = self._spec.point_id
            note = (
                f"the server drafts over {nodes} tokens a step: it runs another point than {point}"
            )
            self._notes = tuple(dict.fromkeys((*self._notes, note)))

    async def other_traffic(self) -> str:
        """What the server's own counters show of others, while nothing of ours is in flight.

        A gauge may be a moment late, so a server that seems busy is asked again. Never raises;
        a server without a metrics page is asked once.
        """
        text = ""
        for _ in range(_BUSY_LOOKS):
            page = None
            if self._has_metrics:
                with suppress(SpecbenchError):
                    page = await self._http.get_text("/metrics")
            self._has_metrics = page is not None
            text = "" if page is None else self._traffic.others(read_counters(page))
            if not text:
                break
            await asyncio.sleep(_BUSY_POLL_S)
        return text

    @abstractmethod
    def _ask(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Route and body of ``request``."""

    @abstractmethod
    def _new_answer(self) -> Answer:
        """A reader for one stream."""

    async def close(self) -> None:
        """Put our own server back to what it ran, and close the connections; never raises."""
        try:
            await self._put_back()
        finally:
            await self._http.close()

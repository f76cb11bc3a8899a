"""Two servers as one backend: one speculates, the other decodes the same target plainly.

An outside server fixes its point at launch, so a speedup over its own plain decoding needs a
second one. Blocks of both take turns as those of one server would.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from specbench.backends.base import BackendFacts, Event
from specbench.backends.remote import RemoteBackend
from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.estimate import Caveat, Severity
from specbench.request import Request
from specbench.trace import Evidence

_PLAIN = SpecConfig.baseline()


class TwoServers:
    """Plain decoding goes to ``plain``, every other point to ``speculating``.

    Raises:
        ConfigError: both have the same address.
    """

    def __init__(self, speculating: RemoteBackend, plain: RemoteBackend) -> None:
        if speculating.url == plain.url:
            raise ConfigError(
                f"--server and --baseline-server are both {plain.url}.",
                expected="Two servers of the same target, the second without speculation.",
            )
        self._speculating = speculating
        self._plain = plain
        self._now = speculating

    @property
    def evidence(self) -> Evidence:
        """The strongest evidence that the server of the point set last can give."""
        return self._now.evidence

    @property
    def notes(self) -> tuple[str, ...]:
        """Reservations about the point set last."""
        return self._now.notes

    @property
    def left(self) -> tuple[str, ...]:
        """After ``close``: which of the two is not as it was found."""
        return (*self._speculating.left, *self._plain.left)

    async def open(self) -> BackendFacts:
        """Connect to both; the facts are the speculating server's, with both addresses.

        Facts of the plain one have ``baseline`` before their names.

        Raises:
            ConfigError: the plain server speculates, or has another target.
            UnreachableError, BackendError: as in ``RemoteBackend.open``, of either.
        """
        facts, plain = await self._speculating.open(), await self._plain.open()
        self._check_points()
        lengths = [most for most in (facts.max_len, plain.max_len) if most is not None]
        return replace(
            facts,
            device={**facts.device, **_named("baseline_", plain.device)},
            inputs={**facts.inputs, **_named("baseline:", plain.inputs)},
            max_len=min(lengths) if lengths else None,
            caveats=tuple(
                dict.fromkeys((*facts.caveats, *plain.caveats, *_target_caveats(facts, plain)))
            ),
        )

    def _check_points(self) -> None:
        """Refuse servers that are known to run the wrong kind of decoding."""
        for reason in self._plain.refused((_PLAIN,)).values():
            raise ConfigError(
                f"The baseline server at {self._plain.url} is none: {reason}.",
                todo="Launch it again without speculation, with the same target.",
            )
        said = self._speculating.claims
        if said.spec == _PLAIN and not said.configurable:
            raise ConfigError(
                f"The server at {self._speculating.url} does not speculate.",
                expected="--server speculates, --baseline-server does not.",
            )

    def refused(self, asked: Sequence[SpecConfig]) -> Mapping[SpecConfig, str]:
        """Those of ``asked`` that neither server can run, with the reasons.

        Raises:
            ConfigError: as in ``ServerClaims.refused``.
        """
        return self._speculating.refused([spec for spec in asked if not spec.is_baseline])

    async def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """Send what follows to the server of ``spec``; raises as ``RemoteBackend.configure``."""
        self._now = self._plain if spec.is_baseline else self._speculating
        await self._now.configure(spec, batch_size)

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Send one request to the server of the point set last."""
        return self._now.stream(request)

    async def other_traffic(self) -> str:
        """What that server's counters show of others; each server's are held against its own."""
        return await self._now.other_traffic()

    async def close(self) -> None:
        """Put both back as in ``RemoteBackend.close``, and close all connections; never raises."""
        await self._speculating.close()
        await self._plain.close()


def _named(prefix: str, facts: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}{name}": value for name, value in facts.items()}


def _target_caveats(facts: BackendFacts, plain: BackendFacts) -> tuple[Caveat, ...]:
    """server_settings, where only names say whether both have the same target.

    Raises:
        ConfigError: files of the target differ, or its names do beyond the folder that they are in.
    """
    shared = [
        name for name in facts.inputs if name.startswith("sha256:target/") and name in plain.inputs
    ]
    for name in shared:
        if facts.inputs[name] != plain.inputs[name]:
            raise ConfigError(
                f"The servers have different targets: {name.removeprefix('sha256:')} differs.",
                todo="Launch both with the same target.",
            )
    one, other = facts.target, plain.target
    if shared or one == other or not (one and other):
        return ()
    text = f"the servers name their targets {one} and {other}: that they are the same is not known"
    if PurePosixPath(one).name.lower() == PurePosixPath(other).name.lower():
        return (Caveat(code="server_settings", severity=Severity.WARNING, text=text),)
    raise ConfigError(
        f"The servers have different targets: {one} and {other}.",
        todo="Launch both with the same target, under the same name.",
    )

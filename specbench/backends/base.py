"""The protocol between the load generator and whatever answers requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from specbench.config import SpecConfig
from specbench.estimate import Caveat
from specbench.request import Request
from specbench.trace import Chunk, Evidence, Finish, StepTrace, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last event of a stream: why it ended and what the server counted."""

    finish: Finish
    usage: Usage = Usage()
    output_ids: tuple[int, ...] | None = None


Event = Chunk | StepTrace | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFacts:
    """What a backend says of itself, for provenance and for the reports.

    ``device`` and ``inputs`` are facts by name (attention call, dtype; paths and hashes).
    ``end_ids`` are the target's end tokens. ``caveats`` hang on every figure of the run.
    """

    backend: str
    target: str
    draft: str
    device: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    max_len: int | None = None
    end_ids: tuple[int, ...] = ()
    caveats: tuple[Caveat, ...] = ()


class Backend(Protocol):
    """Answers requests. One instance serves a whole run; models are loaded once, in ``open``.

    ``stream`` yields StepTrace and Chunk events as they happen and ends with exactly one
    Finished. Closing the generator early cancels the request and frees what it held. A request
    that fails raises BackendError; the others go on.
    """

    @property
    def evidence(self) -> Evidence:
        """The strongest evidence of acceptance that this backend can give."""
        ...

    async def open(self) -> BackendFacts:
        """Load or connect; raises UnreachableError or a UsageError with the reason."""
        ...

    async def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """Switch to a point, with at most ``batch_size`` requests running together.

        Nothing may be in flight. A backend whose server fixes the point at launch raises
        ConfigError unless ``spec`` is what the server runs.
        """
        ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Send one request and yield what comes back."""
        ...

    async def close(self) -> None:
        """Release everything; never raises."""
        ...


@runtime_checkable
class TakesOnTrust(Protocol):
    """A backend of an outside server: what it could not check when a point was configured."""

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence each, after ``configure``."""
        ...


@runtime_checkable
class PutsBack(Protocol):
    """A backend of servers that it switches, and at the end puts back to what they ran."""

    @property
    def left(self) -> tuple[str, ...]:
        """One sentence for each that is not as it was found, after ``close``."""
        ...


async def close_telling(backend: Backend, tell: Callable[[str], None]) -> None:
    """Close ``backend``; ``tell`` hears of servers that are left in another state than found."""
    await backend.close()
    for left in backend.left if isinstance(backend, PutsBack) else ():
        tell(left)


@runtime_checkable
class FixesPoints(Protocol):
    """A backend of outside servers, which may run only what they were launched with."""

    def refused(self, asked: Sequence[SpecConfig]) -> Mapping[SpecConfig, str]:
        """Those of ``asked`` that cannot be measured there, each with the reason; after ``open``.

        Raises:
            ConfigError: the server does not say what it runs, and ``asked`` does not say it.
        """
        ...


@runtime_checkable
class SeesTraffic(Protocol):
    """A backend of an outside server that can tell whether others use it, too."""

    async def other_traffic(self) -> str:
        """What shows it, in words, while nothing of ours is in flight; empty when nothing does.

        Never raises.
        """
        ...


@runtime_checkable
class TellsText(Protocol):
    """A backend that can say what token ids mean."""

    def text_of(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` without special tokens."""
        ...


@runtime_checkable
class GapProbe(Protocol):
    """A backend that can look at the target's logits, to judge a near-tie (semantics.md 18)."""

    def top2_gap(self, request: Request, output_ids: Sequence[int]) -> float:
        """Relative gap of the two best logits after the prompt and ``output_ids``.

        (first − second) / max(|first|, 1), from a plain forward over the whole sequence.
        """
        ...

"""What happened: facts of one run, nothing derived.

Any metric can be computed from these records years later; no record stores a ratio.
Times are nanoseconds of ``time.perf_counter_ns`` of the process that measured them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specbench.errors import EngineError
from specbench.estimate import Evidence as Evidence
from specbench.request import Request


class Finish(enum.StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One delivery of text. ``tokens`` is None when the server did not say how many it holds."""

    at_ns: int
    tokens: int | None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """One request's part of one target forward that checks drafts (semantics.md 7).

    ``drafted`` counts the nodes sent to verification without the root, ``depth`` the deepest
    drafted level, ``accepted`` the drafts kept before trimming and without the bonus token,
    ``emitted`` the tokens the user gets from the step (less than accepted + 1 only when a stop
    or max_tokens cut it). ``ranks[i]`` is the rank among its siblings of the accepted node at
    level i. ``lost`` are the ids of the drafts that would have come next, had the target agreed:
    the best-ranked path below the last accepted node; it is no part of a step's identity.
    ``batch_step`` is shared by the steps of one forward; the four ``*_ns`` parts are
    that forward's wall time, are equal in all of its steps and are counted once.
    ``committed`` is the request's sequence length (prompt and output) when the step began.
    """

    batch_step: int
    batch: int
    committed: int
    drafted: int
    depth: int
    accepted: int
    emitted: int
    ranks: tuple[int, ...] = ()
    draft_ns: int = 0
    extend_ns: int = 0
    verify_ns: int = 0
    other_ns: int = 0
    lost: tuple[int, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.accepted <= self.drafted or self.accepted > self.depth:
            raise EngineError(
                f"a step accepted {self.accepted} of {self.drafted} drafts at depth {self.depth}.",
                expected="0 <= accepted <= depth <= drafted.",
            )
        if not 0 <= self.emitted <= self.accepted + 1:
            raise EngineError(
                f"a step emitted {self.emitted} tokens after accepting {self.accepted}.",
                expected="At most accepted + 1 tokens.",
            )

    @property
    def wall_ns(self) -> int:
        """Wall time of the forward's whole cycle: the sum of its four parts."""
        return self.draft_ns + self.extend_ns + self.verify_ns + self.other_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a server said of one request's speculation in total; None where it did not say.

    ``cached_tokens`` are those of the prompt that a prefix cache had.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    verify_steps: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    histogram: tuple[int, ...] | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Drafts that a step lost (``StepTrace.lost``), and what they would have said."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """Everything seen of one request. ``due_ns`` is when the schedule wanted it sent.

    ``chunks`` and ``steps`` are tuples while a run is recorded, columns when it is read back
    (columns.py). ``rejected`` has an entry a step for the few requests whose text a report shows,
    and is empty for all others.
    """

    request: Request
    due_ns: int
    sent_ns: int
    end_ns: int
    chunks: Sequence[Chunk]
    steps: Sequence[StepTrace]
    finish: Finish
    evidence: Evidence
    usage: Usage = Usage()
    output_ids: tuple[int, ...] | None = None
    error: str = ""
    warmup: bool = False
    rejected: tuple[Rejected, ...] = ()

    @property
    def text(self) -> str:
        """The text that was delivered."""
        return "".join(chunk.text for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun:
    """The requests of one point (an arm) in one block of an interleaved run.

    ``wall_ns`` is the length of the measured window of this block, first send to last delivery.
    """

    point_id: str
    workload: str
    batch_size: int
    temperature: float
    block: int
    started_ns: int
    wall_ns: int
    requests: tuple[RequestTrace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What is needed to repeat a run: plain, JSON-ready facts by topic.

    ``software`` versions and commit, ``machine`` processor, memory and clocks, ``device`` facts
    from the backend (compute capability, attention call, dtype), ``inputs`` hashes and paths of
    model, draft, tokenizer, template and workloads, ``command`` the argument vector.
    """

    started_at: str
    command: tuple[str, ...]
    software: Mapping[str, str]
    machine: Mapping[str, str]
    device: Mapping[str, str]
    inputs: Mapping[str, str]

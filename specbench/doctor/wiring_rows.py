"""What an engine really feeds its draft, row by row, beside the texts and the captured streams.

A row joins a token with the target's features (engine-spec 2.4). Which tokens, which streams, which
rows of them, and how many: each is compared with what the files imply, and what differs names the
wire without a guess. The drafter and its model are watched through what they call, so a watched
engine computes exactly what an unwatched one does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from specbench.doctor.wiring_streams import Stream, name_stream
from specbench.engine.batch import Batch
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.models.base import RowKind
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.probe_capture import Capture
from specbench.engine.tree import Tree
from specbench.engine.verify import Verdict
from specbench.engine.wiring import Wiring


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the draft was fed in one phase, over all rows.

    ``streams`` say what each chunk of the features was; ``layers`` is the physical index that it
    equals (None: none of them), ``scale`` the ratio of its size to the claimed layer's.
    ``wrong_tokens`` is the share of tokens that are not the text's next, ``borders`` the part of
    those in the last row of a chunk. ``missing`` is the share of rows that were kept and not fed,
    ``wrong_guess`` the share of calls after which another row than the last one guesses, and
    ``stale`` the share of rows with features that the verify before had handed over.
    """

    phase: str
    rows: int
    wrong_tokens: float
    borders: float
    streams: tuple[Stream, ...]
    missing: float = 0.0
    wrong_guess: float = 0.0
    stale: float = 0.0

    @property
    def layers(self) -> tuple[int | None, ...]:
        """Physical indices by slot."""
        return tuple(s.layer if s.kind == "layer" else None for s in self.streams)

    @property
    def scale(self) -> tuple[float, ...]:
        """Ratios of size by slot."""
        return tuple(s.scale for s in self.streams)


@dataclass(slots=True, kw_only=True)
class Call:
    """One prefill chunk or extend: the tokens that the engine handed over, and the rows fed.

    ``given`` [N, A·Ht] are the features of a verify, one row per node.
    """

    phase: str
    text: int
    start: int
    handed: list[int]
    tokens: list[int] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    given: Tensor | None = None


class RowWatch:
    """A drafter that passes everything on to the engine's own, and notes it."""

    def __init__(self, inner: Eagle3Drafter) -> None:
        self._inner, self._model = inner, inner._model
        inner._model = cast("Eagle3Draft", _WatchedModel(self._model, self._note))
        self.text = 0
        self.calls: list[Call] = []
        self.drafted: list[tuple[int, int, list[int]]] = []

    def restore(self) -> Eagle3Drafter:
        """Take the watch off; the drafter is as before."""
        self._inner._model = self._model
        return self._inner

    def propose(self, batch: Batch) -> Tree:
        """The inner tree; its tokens are noted."""
        tree = self._inner.propose(batch)
        self.drafted.append((self.text, batch.starts[0], tree.tokens[0].tolist()))
        return tree

    def extend(self, batch: Batch, features: Tensor, verdicts: Sequence[Verdict]) -> None:
        """The inner extend of one lane."""
        self._open("verify", batch.starts[0], verdicts[0].tokens)
        self.calls[-1].given = features.clone()
        self._inner.extend(batch, features, verdicts)

    def prefill(
        self, lane: int, start: int, tokens: Sequence[int], features: Tensor, *, last: bool
    ) -> None:
        """The inner prefill."""
        self._open("prefill", start, tokens)
        self._inner.prefill(lane, start, tokens, features, last=last)

    def move(self, source: int, target: int, length: int) -> None:
        """As the inner."""
        self._inner.move(source, target, length)

    def clear(self, lane: int) -> None:
        """As the inner."""
        self._inner.clear(lane)

    def _open(self, phase: str, start: int, tokens: Sequence[int]) -> None:
        self.calls.append(Call(phase=phase, text=self.text, start=start, handed=list(tokens)))

    def _note(self, tokens: Tensor, features: Tensor) -> None:
        self.calls[-1].tokens += tokens.tolist()
        self.calls[-1].features.append(features)


class _WatchedModel:
    """A draft model that tells which rows of true features it remembers."""

    def __init__(self, model: Eagle3Draft, note: Callable[[Tensor, Tensor], None]) -> None:
        self._inner, self._note = model, note
        self._waiting: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def hidden(self, vectors: Tensor, kind: RowKind) -> Tensor:
        """As the model; true features wait for their tokens."""
        self._waiting = vectors.clone() if kind is RowKind.TARGET_FEATURES else None
        return self._inner.hidden(vectors, kind)

    def remember(self, tokens: Tensor, hidden: Tensor, *rest: Any) -> Tensor:
        """As the model; rows of true features are noted."""
        if self._waiting is not None:
            self._note(tokens, self._waiting)
            self._waiting = None
        return self._inner.remember(tokens, hidden, *rest)


@dataclass(slots=True)
class _Phase:
    """Rows of one phase while they are gathered."""

    texts: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    wrong: list[bool] = field(default_factory=list)
    border: list[bool] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)
    kept: int = 0
    missing: int = 0
    calls: int = 0
    wrong_guess: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Rows by phase; ``wrong_from`` is the first position of each text whose row is not what the
    files imply, None where all are."""

    rows: tuple[Rows, ...]
    wrong_from: tuple[int | None, ...]


def audit_rows(captured: Capture, claimed: Wiring, watch: RowWatch) -> Audit:
    """All rows that were fed against those that the files imply.

    Args:
        captured: the texts that were served, with every stream.
        claimed: the files' wiring.
        watch: what was seen while they were served one at a time.
    """
    phases = {"prefill": _Phase(), "verify": _Phase()}
    begins: list[int | None] = [None] * len(captured.samples)
    for call in watch.calls:
        _gather(captured, call, phases[call.phase], begins)
    rows = []
    for name, phase in phases.items():
        if not phase.places:
            continue
        streams, off = name_streams(captured, claimed, phase)
        stale = _stale(watch.calls) if name == "verify" else 0.0
        rows.append(_rows(name, phase, streams, stale))
        for at, bad in enumerate(off):
            if bad:
                _begin(begins, phase.texts[at], phase.places[at] - captured.starts[phase.texts[at]])
    return Audit(rows=tuple(rows), wrong_from=tuple(begins))


def _gather(captured: Capture, call: Call, into: _Phase, begins: list[int | None]) -> None:
    """Rows of a call, matched to their places: from its start, or up to its end when some lack."""
    tokens = captured.samples[call.text].tokens
    room = min(len(call.handed), len(tokens) - 1 - call.start)
    if room < len(call.handed):  # past the text that is known: nothing to compare with
        return
    fed = min(len(call.tokens), room)
    first = room - fed
    into.kept += room
    into.missing += first
    into.calls += 1
    if not call.tokens or call.tokens[-1] != tokens[call.start + room]:
        into.wrong_guess += 1
        _begin(begins, call.text, call.start + room - 1)
    if first:
        _begin(begins, call.text, call.start)
    for i in range(fed):
        at = call.start + first + i
        wrong = call.tokens[i] != tokens[at + 1]
        into.texts.append(call.text)
        into.places.append(captured.starts[call.text] + at)
        into.wrong.append(wrong)
        into.border.append(first + i == room - 1)
        if wrong:
            _begin(begins, call.text, at)
    if fed:
        into.features += [
            part[: fed - done] for part, done in _counted(call.features) if done < fed
        ]


def _counted(parts: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
    """Every part with the number of rows before it."""
    found, done = [], 0
    for part in parts:
        found.append((part, done))
        done += part.shape[0]
    return found


def _begin(begins: list[int | None], text: int, position: int) -> None:
    known = begins[text]
    begins[text] = position if known is None else min(known, position)


def name_streams(
    captured: Capture, claimed: Wiring, phase: _Phase
) -> tuple[tuple[Stream, ...], list[bool]]:
    """What each chunk was, and which rows are not the claimed layers'."""
    at = torch.tensor(phase.places, device=captured.tokens.device)
    texts = torch.tensor(phase.texts, device=captured.tokens.device)
    chunks = torch.cat(phase.features).chunk(len(claimed.slots), -1)
    named = [
        name_stream(captured, texts, at, chunk, own)
        for own, chunk in zip(claimed.slots, chunks, strict=True)
    ]
    off = torch.stack([bad for _, bad in named]).any(0)
    return tuple(stream for stream, _ in named), off.tolist()


def _stale(calls: Sequence[Call]) -> float:
    """Share of rows fed after a verify whose features came from the verify before, not this one."""
    old = rows = 0
    for before, call in itertools.pairwise(calls):
        if call.given is None or before.given is None or not call.features:
            continue
        fed = torch.cat(call.features)
        rows += len(fed)
        old += int((_among(fed, before.given) & ~_among(fed, call.given)).sum())
    return old / rows if rows else 0.0


def _among(rows: Tensor, those: Tensor) -> Tensor:
    """Which rows [R, W] equal one of ``those`` [N, W]."""
    found: Tensor = (rows[:, None] == those[None]).all(-1).any(-1)
    return found


def _rows(name: str, phase: _Phase, streams: tuple[Stream, ...], stale: float) -> Rows:
    wrong = sum(phase.wrong)
    edges = sum(w and b for w, b in zip(phase.wrong, phase.border, strict=True))
    return Rows(
        phase=name,
        rows=len(phase.places),
        wrong_tokens=wrong / len(phase.places),
        borders=edges / wrong if wrong else 0.0,
        streams=streams,
        missing=phase.missing / phase.kept if phase.kept else 0.0,
        wrong_guess=phase.wrong_guess / phase.calls if phase.calls else 0.0,
        stale=stale,
    )

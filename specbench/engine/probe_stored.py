"""Score a draft on stored features: offline files become what a capture would have given.

The target runs for one short check only (``probe_evidence``); its head turns the stored last states
into its choices. Rows of an un-normed last state go through the final norm and the head in the same
pieces as in a live capture, so that a dump scores exactly as the probe that runs the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import (
    MOST_BYTES,
    Capture,
    Decided,
    needed_bytes,
    norm_weights,
    rms_norm,
)
from specbench.engine.probe_evidence import Evidence, judge
from specbench.engine.probe_files import RawText, feature_files, read_feature_file
from specbench.engine.probe_store import INDEX, check_target, read_index, read_stored
from specbench.engine.probe_text import Sample
from specbench.engine.runner import chunks
from specbench.engine.wiring import Tap
from specbench.errors import ConfigError, WorkloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Stored features as a capture, and what is known of them.

    ``own_text`` says that every reply is the target's own greedy one. ``left_out`` texts did not
    fit the budget; ``too_short`` replies have no position from which K steps are known.
    ``masked`` is False where a file has no loss mask, so that every token counts as reply.
    ``missing`` texts of a dump were not written yet.
    """

    capture: Capture
    evidence: Evidence
    own_text: bool
    left_out: int
    too_short: int
    masked: bool
    missing: int

    @property
    def own_share(self) -> float:
        """Share of reply tokens that are the target's argmax after the token before."""
        capture = self.capture
        rows = capture.in_reply().nonzero()[:, 0]
        return float((capture.best[rows - 1] == capture.tokens[rows]).double().mean())

    @property
    def notes(self) -> tuple[str, ...]:
        """What each stream was found to be, and what was not there, a sentence each."""
        notes = list(self.evidence.lines)
        if self.missing:
            notes.append(f"the dump was cut off: {self.missing} texts are missing")
        if not self.masked:
            notes.append("no loss mask is stored, so every token counts as reply")
        if self.too_short:
            notes.append(f"{self.too_short} replies are too short to give a position")
        if not self.own_text:
            notes.append(
                f"{self.own_share:.1%} of the reply tokens are the target's own choice; survival "
                "counts the starts whose next tokens are, and there is no walk"
            )
        return tuple(notes)


@dataclass(slots=True)
class _Rows:
    """The rows of one text: streams by slot, last states before the norm, and choices."""

    samples: list[Sample]
    tokens: Tensor
    streams: list[Tensor]
    normed: Tensor
    decided: Decided


def load_stored(
    pair: ModelPair,
    path: Path,
    slots: tuple[int, ...],
    vocab_ids: Tensor,
    *,
    steps: int,
    requests: int,
    positions: int,
) -> Stored:
    """Read the texts of ``path`` while they fit.

    Args:
        pair: the loaded target; float32 or wider for exact figures.
        path: a folder of ``specbench probe --dump``, or feature files of speculators or SpecForge.
        slots: physical indices that the draft takes, in the order of fc's input.
        vocab_ids: target ids that the draft knows [Vd].
        steps: K.
        requests: most texts.
        positions: most reply tokens.

    Raises:
        WorkloadError: no feature files, pickles, tensors that are not these two models', or
            nothing to score.
        ConfigError: the features do not fit into memory.
    """
    own = (path / INDEX).is_file()
    texts, count, missing = _dumped(pair, path, slots, steps) if own else _outside(pair, path)
    reading = _Reading(pair, slots, vocab_ids)
    for raw, dumped in texts:
        samples = [dumped] if dumped else list(reply_samples(raw, steps))
        positions -= sum(sample.output_len for sample in samples)
        if reading.done == requests or positions < 0:
            break
        reading.add(raw, samples, own=own)
    if reading.evidence is None or not reading.taken:
        raise WorkloadError(
            f"{path}: none of {reading.done} texts has a reply of {max(steps, 2)} tokens, and "
            f"{count - reading.done} were left out by the budgets.",
            todo="Lower --num-steps, raise --positions, or give longer texts.",
        )
    return Stored(
        capture=_joined(reading.taken, slots),
        evidence=reading.evidence,
        own_text=own,
        left_out=count - reading.done,
        too_short=reading.too_short,
        masked=reading.masked,
        missing=missing,
    )


class _Reading:
    """The texts taken so far; the first of them tells what the streams are."""

    def __init__(self, pair: ModelPair, slots: tuple[int, ...], vocab_ids: Tensor) -> None:
        self._pair, self._slots, self._vocab_ids = pair, slots, vocab_ids
        self._final = norm_weights(pair)[pair.target_spec.n_layers]
        self.taken: list[_Rows] = []
        self.evidence: Evidence | None = None
        self.masked, self.too_short, self.done = True, 0, 0

    def add(self, raw: RawText, samples: list[Sample], *, own: bool) -> None:
        """Check a text and keep its rows, if it has a reply to score."""
        pair, slots = self._pair, self._slots
        _check(pair, raw, slots)
        self.done += 1
        if self.evidence is None:
            self.evidence = judge(pair, raw, slots)
        self.masked = self.masked and raw.mask is not None
        self.too_short += sum(sample.output_len < 2 for sample in samples)
        kept = [sample for sample in samples if own or sample.output_len >= 2]
        if kept:
            normed = self.evidence.normed
            rows = _rows(pair, raw, kept, self._final, self._vocab_ids, normed=normed)
            self.taken.append(rows)
        _check_memory(pair, self.taken, len(slots))


def _dumped(
    pair: ModelPair, path: Path, slots: tuple[int, ...], steps: int
) -> tuple[Iterator[tuple[RawText, Sample | None]], int, int]:
    """The texts of a dump, how many there are, and how many it is still without."""
    index = read_index(path)
    if steps > index.past + 2:
        raise WorkloadError(
            f"{path} goes {index.past} tokens past each cut, too few for {steps} steps.",
            expected=f"At most --num-steps {index.past + 2} here.",
            todo="Dump it again with more --num-steps.",
        )
    check_target(path, index, pair.inputs)
    texts = (read_stored(path, index, text, slots) for text in index.stored)
    return texts, len(index.stored), index.texts - len(index.stored)


def _outside(
    pair: ModelPair, path: Path
) -> tuple[Iterator[tuple[RawText, Sample | None]], int, int]:
    files, width = feature_files(path), pair.target_spec.shape.hidden
    return ((read_feature_file(file, width), None) for file in files), len(files), 0


def _check(pair: ModelPair, raw: RawText, slots: tuple[int, ...]) -> None:
    """Ids, number of streams and widths are those of the target and the draft."""
    vocab, width = pair.target_spec.vocab, pair.target_spec.shape.hidden
    if len(raw.streams) != len(slots):
        raise WorkloadError(
            f"{raw.where} holds {len(raw.streams)} streams beside the last state, the draft takes "
            f"{len(slots)}: physical layers {list(slots)}.",
            expected="The features that the draft was trained on; the last state comes after them.",
        )
    outside = [token for token in raw.tokens if not 0 <= token < vocab]
    if outside:
        raise WorkloadError(
            f"{raw.where} holds token {outside[0]}.", expected=f"The target's ids, 0..{vocab - 1}."
        )
    for name, part in (
        *((f"stream {j}", s) for j, s in enumerate(raw.streams)),
        ("last", raw.last),
    ):
        if part.ndim != 2 or part.shape[1] != width:
            raise WorkloadError(
                f"{raw.where}: {name} has shape {list(part.shape)}, the target's width is {width}.",
                todo="Give the target that the features were taken from.",
            )


def reply_samples(raw: RawText, steps: int) -> Iterator[Sample]:
    """The replies that a mask marks, each with the text before it.

    Without a mask all tokens but the first are one reply. Of a reply of L tokens the last K - 2
    give no position, since K steps must be known from each; one of fewer has ``output_len`` < 2.
    """
    mask = raw.mask or (False, *([True] * (len(raw.tokens) - 1)))
    edges = [at for at in range(len(mask)) if mask[at] and (at == 0 or not mask[at - 1])]
    for begin in edges:
        end = next((at for at in range(begin, len(mask)) if not mask[at]), len(mask))
        start = max(begin, 1)  # a position needs a token before it
        length = end - start
        yield Sample(
            request_id=raw.where,
            category="",
            tokens=raw.tokens[:end],
            prompt_len=start,
            output_len=max(min(length, length + 2 - steps), 0),
        )


def _rows(
    pair: ModelPair,
    raw: RawText,
    samples: list[Sample],
    final: Tensor,
    vocab_ids: Tensor,
    *,
    normed: bool,
) -> _Rows:
    """Streams in the pair's dtype, and what the target's head makes of the last states.

    ``final`` [H] is the weight of the norm in front of the head.
    """
    last = raw.last.to(pair.device, pair.dtype)
    # A norm does not see the length of a row: y / w is as good as the state that y came from.
    state = torch.where(final == 0, 0, last / final) if normed else last
    decided = Decided(vocab_ids)
    for start, part, _ in chunks(raw.tokens):
        decided.add(pair.target.logits(state[start : start + len(part)]))
    return _Rows(
        samples=samples,
        tokens=torch.tensor(raw.tokens, device=pair.device),
        streams=[stream.to(pair.device, pair.dtype) for stream in raw.streams],
        normed=last if normed else rms_norm(last, final, pair.target_spec.shape.eps),
        decided=decided,
    )


def _joined(taken: Sequence[_Rows], slots: tuple[int, ...]) -> Capture:
    """All samples after one another; several of one text repeat the rows that they share."""
    parts = [(rows, sample) for rows in taken for sample in rows.samples]
    lengths = [len(sample.tokens) for _, sample in parts]

    def joined(of: list[Tensor]) -> Tensor:
        return torch.cat([x[:length] for x, length in zip(of, lengths, strict=True)])

    chosen = [(rows, rows.decided) for rows, _ in parts]
    return Capture(
        samples=tuple(sample for _, sample in parts),
        starts=tuple(sum(lengths[:i]) for i in range(len(lengths))),
        tokens=joined([rows.tokens for rows, _ in chosen]),
        features={
            (Tap.RESIDUAL, slot): joined([rows.streams[place] for rows, _ in chosen])
            for place, slot in enumerate(slots)
        },
        normed=joined([rows.normed for rows, _ in chosen]),
        best=joined([torch.cat(d.best) for _, d in chosen]),
        best_known=joined([torch.cat(d.known) for _, d in chosen]),
        gap=joined([torch.cat(d.gap) for _, d in chosen]),
    )


def _check_memory(pair: ModelPair, taken: Sequence[_Rows], streams: int) -> None:
    rows = sum(len(sample.tokens) for rows in taken for sample in rows.samples)
    size = needed_bytes(rows, streams, pair.target_spec.shape.hidden, pair.dtype.itemsize)
    if size > MOST_BYTES:
        raise ConfigError(
            f"{rows} rows of {streams} layers need {size / 1024**3:.1f} GiB.",
            expected=f"At most {MOST_BYTES / 1024**3:.0f} GiB.",
            todo="Lower --requests or --positions.",
        )

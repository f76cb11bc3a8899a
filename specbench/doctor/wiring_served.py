"""What does the engine really run? Its verify steps and draft rows against the offline probe.

The probe computes every step from the files alone, so an engine that runs the claimed wiring makes
exactly those steps. Where it does not, three things name the fault: the rows that its draft was fed
(``wiring_rows``), the one wiring whose steps equal the engine's, and how its drafted tokens follow
from the draft's own choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specbench.doctor.wiring_alternatives import alternatives_for
from specbench.doctor.wiring_candidates import Bounds, Change
from specbench.doctor.wiring_rows import Audit, Rows, RowWatch, audit_rows
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import BoolArray, IntArray, Scores
from specbench.engine.probe_text import steps_of
from specbench.errors import ConfigError
from specbench.request import Request, SamplingParams
from specbench.trace import StepTrace

AGREES = 0.995
PREFILL_CHUNK = 32
MANY = 0.98
LEAST_BEFORE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The engine's steps against the probe's: shares of steps with the same accepted count.

    ``first`` and ``later`` part the steps of each request. ``accepted`` counts of the engine and
    ``expected`` ones stand by step, for ``texts``; ``at`` is the committed length. ``alternatives``
    are wirings by their agreement, best first; ``audit`` is what its draft was fed;
    ``outputs_equal`` is the share of requests whose tokens are those of plain decoding.
    ``map_read`` says how draft ids became tokens where not as the files say: ``direct_map`` or
    ``zero_map``.
    """

    steps: int
    agreement: float
    first: float
    later: float
    accepted: IntArray
    expected: IntArray
    texts: IntArray
    at: IntArray
    alternatives: tuple[tuple[Change, float], ...]
    audit: Audit
    outputs_equal: float
    map_read: str = ""

    @property
    def rows(self) -> tuple[Rows, ...]:
        """What the draft was fed, by phase."""
        return self.audit.rows

    @property
    def accept_length(self) -> float:
        """Bonus token counted."""
        return 1 + float(self.accepted.mean())

    @property
    def expected_accept_length(self) -> float:
        """Of the same steps, were the files' wiring run."""
        return 1 + float(self.expected.mean())

    @property
    def agrees(self) -> bool:
        """The engine runs what the files claim: it makes those steps, and is fed those rows."""
        rows_right = all(begin is None for begin in self.audit.wrong_from)
        return self.agreement >= AGREES and rows_right

    @property
    def differs_from(self) -> int | None:
        """Position from which on steps differ, where all before are as claimed; else None."""
        odd = self.accepted != self.expected
        if not odd.any():
            return None
        place = int(self.at[odd].min())
        before, after = int((self.at < place).sum()), odd[self.at >= place]
        return place if before >= LEAST_BEFORE and float(after.mean()) > 1 - MANY else None


def run_served(
    engine: Engine, captured: Capture
) -> tuple[list[list[StepTrace]], RowWatch, list[bool]]:
    """Serve every text's prompt again, speculatively, and watch what the draft is fed.

    Returns:
        Steps by text, what was seen, and whether each text's tokens are the plain ones.

    Raises:
        ConfigError: the engine does not draft.
    """
    if not isinstance(engine.drafter, Eagle3Drafter):
        raise ConfigError("the engine is not configured to draft.", todo="Configure a chain.")
    watch, steps, equal = RowWatch(engine.drafter), [], []
    engine.drafter = watch
    with torch.inference_mode():
        for text, sample in enumerate(captured.samples):
            watch.text = text
            end = sample.prompt_len + sample.output_len
            request = Request(
                request_id=sample.request_id,
                prompt_ids=sample.tokens[: sample.prompt_len],
                sampling=SamplingParams(max_tokens=sample.output_len, ignore_eos=True),
            )
            traces, ids = steps_of(engine, request)
            steps.append(traces)
            equal.append(ids == sample.tokens[sample.prompt_len : end])
    engine.drafter = watch.restore()
    return steps, watch, equal


def compare_served(engine: Engine, draft: ProbeDraft, captured: Capture, bounds: Bounds) -> Served:
    """Run the engine, and find the wiring that makes its steps.

    Args:
        engine: configured to a chain; its steps are compared. With a small ``prefill_chunk``
            (``PREFILL_CHUNK``) the rows at the borders of chunks are seen as well.
        draft: the files, apart from the engine.
        captured: texts with at least K tokens past their cut.
        bounds: what can be varied.
    """
    depth = engine.spec.num_steps
    steps, watch, equal = run_served(engine, captured)
    rows, accepted, first, texts, at = _positions(captured, steps)
    claimed = draft.claimed
    scores = draft.score(captured, claimed, depth)

    expected = scores.alive.sum(1)[rows]
    here: BoolArray = accepted == expected
    audit = audit_rows(captured, claimed, watch)
    scored: list[tuple[Change, float]] = []
    if here.mean() < AGREES:
        for change in alternatives_for(audit, claimed, bounds):
            made = draft.score(captured, change.wiring, depth).alive.sum(1)[rows]
            scored.append((change, float((made == accepted).mean())))
    return Served(
        steps=len(rows),
        agreement=float(here.mean()),
        first=float(here[first].mean()),
        later=float(here[~first].mean()) if (~first).any() else float("nan"),
        accepted=accepted,
        expected=expected,
        texts=texts,
        at=at,
        alternatives=tuple(sorted(scored, key=lambda pair: -pair[1])),
        audit=audit,
        outputs_equal=float(np.mean(equal)),
        map_read=_map_read(draft, captured, scores, watch),
    )


def _map_read(draft: ProbeDraft, captured: Capture, scores: Scores, watch: RowWatch) -> str:
    """How draft ids became tokens, from the first drafts of all steps (engine-spec 1.8)."""
    ids, offsets = draft.target_ids().tolist(), draft.offsets.tolist()
    row_of = {token: i for i, token in enumerate(ids)}
    seen: list[tuple[int, int]] = []
    first_row = np.concatenate([[0], np.cumsum(np.bincount(scores.text))])
    for text, committed, tokens in watch.drafted:
        sample = captured.samples[text]
        row = committed - sample.prompt_len
        if 0 <= row < sample.output_len - 1:
            guess = int(scores.guess[int(first_row[text]) + row, 0])
            seen.append((row_of[guess], tokens[1]))
    readings = {
        "": [ids[own] == token for own, token in seen],
        "zero_map": [own == token for own, token in seen],
        "direct_map": [offsets[own] == token for own, token in seen],
    }
    found = [name for name, hits in readings.items() if seen and float(np.mean(hits)) >= MANY]
    return found[0] if found else ""


def _positions(
    captured: Capture, steps: Sequence[Sequence[StepTrace]]
) -> tuple[IntArray, IntArray, BoolArray, IntArray, IntArray]:
    """Scored row, accepted count, whether it is a request's first, text and committed length of
    every step."""
    found, offset = [], 0
    for text, (sample, traces) in enumerate(zip(captured.samples, steps, strict=True)):
        for index, trace in enumerate(traces):
            row = offset + trace.committed - sample.prompt_len - 1
            found.append((row, trace.accepted, index == 0, text, trace.committed))
        offset += max(sample.output_len - 1, 0)
    table = np.array(found, dtype=np.int64).reshape(-1, 5)
    rows, accepted, first, texts, at = table.T
    return rows, accepted, first.astype(bool), texts, at

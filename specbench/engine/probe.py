"""How well a draft guesses the target's own text: sums per reply, for any grouping of replies.

Three figures that are often taken for one another (engine-spec 11.1 to 11.4): accuracy with true
tokens fed in, survival of a chain fed its own tokens, and the accept length of the verify steps
that a server would make. Sums stay apart by reply, so that intervals can be clustered by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import IntArray, Scores, Walked, walk
from specbench.engine.probe_text import Sample, greedy_texts
from specbench.errors import ConfigError, WorkloadError
from specbench.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySums:
    """Counts over one reply; tuples have one entry per step 1..K.

    ``positions`` are chain starts. ``known`` counts the draft's argmax being the target's best
    token among those the draft knows, ``hits`` the same over the whole vocabulary, ``alive``
    chains whose steps 1..k are all right. ``verify_steps`` and ``accepted`` are those of the walk.
    """

    request_id: str
    category: str
    positions: int
    known: tuple[int, ...]
    hits: tuple[int, ...]
    alive: tuple[int, ...]
    verify_steps: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe counted; ``layers`` are the physical indices captured, ``left_out`` the requests
    that the budget of positions had no room for."""

    steps: int
    layers: tuple[int, ...]
    replies: tuple[ReplySums, ...]
    left_out: int

    @property
    def positions(self) -> int:
        """Chain starts of all replies."""
        return sum(reply.positions for reply in self.replies)

    def categories(self) -> tuple[str, ...]:
        """In the order met."""
        return tuple(dict.fromkeys(reply.category for reply in self.replies))


def probe(
    pair: ModelPair,
    draft: ProbeDraft,
    requests: Sequence[Request],
    *,
    steps: int,
    positions: int,
) -> ProbeResult:
    """Score the draft on the target's greedy replies, wired as its files claim.

    Args:
        pair: loaded models; float32 or wider for exact figures.
        draft: the draft, apart from the engine.
        requests: prompts; their sampling gives the length.
        steps: K.
        positions: most chain starts; whole requests, in order, while their max_tokens fit.

    Raises:
        ConfigError: K or the budget is under 1, or the streams do not fit into memory.
        WorkloadError: no request fits, or no reply has two tokens.
    """
    if steps < 1:
        raise ConfigError(f"num_steps {steps}.", expected="1 or more.")
    taken = _within(requests, positions)
    samples = greedy_texts(pair, taken, past=steps)
    wiring = draft.claimed
    captured = capture(
        pair, samples, vocab_ids=draft.target_ids(), layers=wiring.slots, taps=(wiring.tap,)
    )
    scores = draft.score(captured, wiring, steps)
    return ProbeResult(
        steps=steps,
        layers=wiring.slots,
        replies=reply_sums(captured, scores, steps),
        left_out=len(requests) - len(taken),
    )


def reply_sums(captured: Capture, scores: Scores, steps: int) -> tuple[ReplySums, ...]:
    """The counts of every reply that has a position to score."""
    walked = walk(captured, scores, steps)
    rows = [np.flatnonzero(scores.text == i) for i in range(len(walked))]
    every = zip(captured.samples, rows, walked, strict=True)
    return tuple(_sums(sample, scores, at, made) for sample, at, made in every if len(at))


def _sums(sample: Sample, scores: Scores, at: IntArray, made: Sequence[Walked]) -> ReplySums:
    return ReplySums(
        request_id=sample.request_id,
        category=sample.category,
        positions=len(at),
        known=tuple(scores.known_hit[at].sum(0).tolist()),
        hits=tuple(scores.hit[at].sum(0).tolist()),
        alive=tuple(scores.alive[at].sum(0).tolist()),
        verify_steps=len(made),
        accepted=sum(step.accepted for step in made),
    )


def _within(requests: Iterable[Request], budget: int) -> list[Request]:
    """Requests from the front whose max_tokens add up to no more than ``budget``."""
    taken: list[Request] = []
    for request in requests:
        budget -= request.sampling.max_tokens
        if budget < 0:
            break
        taken.append(request)
    if not taken:
        raise WorkloadError(
            "no request fits the budget of positions.",
            expected="A budget of at least one request's max_tokens.",
            todo="Raise --positions or lower --max-tokens.",
        )
    return taken

"""What no wiring explains: a draft that is poor as claimed and under every candidate.

Two tables made of half of the replies, and judged on the other half, say how poor is too poor:

- *by token*: which token follows the one just committed. It knows no feature, no position and no
  weight of the draft, so a draft that does not beat it makes nothing of what it is fed.
- *by guess*: which token is right when the draft guesses this one. It beats the draft only where
  the draft's rows mean other tokens than its map says (a head beside the map of another run); and
  only if it beats the first table as well did the draft know what comes.

Positions whose token the draft's vocabulary lacks are left out: they are ``checks_coverage``'s.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specbench.doctor.findings import FAULT_Z, Fact, Finding, Severity, evidence_score
from specbench.doctor.symptoms import HEALTHY_FIRST, LOW_FIRST
from specbench.doctor.wiring import LEAST_REQUESTS, Verdict, paired_gain
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import IntArray, chain_rows
from specbench.engine.wiring import Wiring

FloatArray = npt.NDArray[np.float64]
NONE = "wiring.none"
MOST_OF = 0.5
_WHERE = "the target's own greedy text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardsticks:
    """Right first guesses by position [R] that a draft can get right: its own, and both tables'.

    ``text`` [R] is the position's request. ``moved`` says in words how the rows that the second
    table learned differ from those of the map; empty where they differ in no single way.
    """

    draft: FloatArray
    by_token: FloatArray
    by_guess: FloatArray
    text: IntArray
    moved: str = ""

    def beats(self, one: FloatArray, other: FloatArray) -> bool:
        """By more than three standard errors, clustered by request."""
        gain, error = paired_gain(one, other, self.text)
        return gain > FAULT_Z * error


def yardsticks(draft: ProbeDraft, captured: Capture, wiring: Wiring) -> Yardsticks:
    """Score the first step of ``wiring``, and both tables on the same positions."""
    scores, rows = draft.score(captured, wiring, 1), chain_rows(captured, 1).rows
    known = scores.rank[:, 0] >= 0
    last: IntArray = captured.tokens[rows + 1].cpu().numpy()[known]
    truth: IntArray = captured.best[rows + 1].cpu().numpy()[known]
    guess, text = scores.guess[known, 0], scores.text[known]
    learned = _learned(guess, truth, text)
    ids = draft.target_ids(direct=wiring.direct_map).tolist()
    return Yardsticks(
        draft=scores.hit[known, 0].astype(np.float64),
        by_token=(_learned(last, truth, text) == truth).astype(np.float64),
        by_guess=(learned == truth).astype(np.float64),
        text=text,
        moved=_moved(ids, guess, learned, learned == truth),
    )


def _learned(keys: IntArray, truth: IntArray, text: IntArray) -> IntArray:
    """What followed each key most often in the other half of the texts; an unseen key gets what is
    most frequent there."""
    found, half = np.empty_like(truth), text % 2
    for part in (0, 1):
        seen: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for key, token in zip(keys[half != part], truth[half != part], strict=True):
            seen[int(key)][int(token)] += 1
        common = sum(seen.values(), Counter[int]()).most_common(1)
        best = {key: count.most_common(1)[0][0] for key, count in seen.items()}
        default = common[0][0] if common else -1
        here = half == part
        found[here] = [best.get(int(key), default) for key in keys[here]]
    return found


def _moved(ids: list[int], guess: IntArray, learned: IntArray, right: npt.NDArray[np.bool_]) -> str:
    """A shift of target ids, or of rows of the head, that most of the right guesses share."""
    row_of = {token: row for row, token in enumerate(ids)}
    pairs = list(zip(guess[right].tolist(), learned[right].tolist(), strict=True))
    tokens = Counter(new - old for old, new in pairs)
    rows = Counter(row_of[new] - row_of[old] for old, new in pairs if new in row_of)
    for what, counts in (("target ids", tokens), ("rows of the head", rows)):
        shift, count = counts.most_common(1)[0] if counts else (0, 0)
        if shift and count > MOST_OF * len(pairs):
            return f"{count} of {len(pairs)} of these are {what} {shift:+d} from what d2t says"
    return ""


def unexplained(draft: ProbeDraft, captured: Capture, verdict: Verdict) -> Finding | None:
    """What is wrong with a draft that its best wiring leaves poor; None where it is not.

    Args:
        draft: apart from the engine.
        captured: the text of the verdict, or its first part.
        verdict: of ``probe_wiring``; a repair that it names is taken for granted.
    """
    if len(captured.samples) < LEAST_REQUESTS:
        return None
    best = verdict.winner or verdict.claimed
    seen = yardsticks(draft, captured, best.change.wiring)
    if len(np.unique(seen.text)) < LEAST_REQUESTS:
        return None
    if seen.beats(seen.by_guess, seen.draft) and seen.beats(seen.by_guess, seen.by_token):
        return _head(seen, verdict, mapped=len(draft.target_ids()) < draft.spec.vocab)
    if not seen.beats(np.full_like(seen.draft, LOW_FIRST), seen.draft):
        return None
    if seen.beats(seen.draft, seen.by_token):
        return _weak(seen, verdict)
    return _none(seen, verdict)


def _head(seen: Yardsticks, verdict: Verdict, *, mapped: bool) -> Finding:
    gain, error = paired_gain(seen.by_guess, seen.draft, seen.text)
    wrong = "the head's rows are not the target's tokens"
    if mapped:
        wrong = "d2t is not the map that this head was trained with"
    facts = [_tables(seen)]
    if seen.moved:
        facts.append(Fact(text=seen.moved, where=_WHERE))
    facts.append(_unseen(verdict))
    return Finding(
        code="wiring.head",
        severity=Severity.ERROR,
        title=f"The draft knows what comes and says other tokens: {wrong}",
        evidence=tuple(facts),
        remedy="Export head, d2t and t2d from one training run: a map that was made again, from "
        "other text or another tokenizer, is another map."
        if mapped
        else "Give the target, and the tokenizer, that it was trained with.",
        figures=_figures(seen) | {"gain": gain, "standard_error": error},
        score=evidence_score(gain / max(1 - float(seen.draft.mean()), 1e-9), _z(gain, error)),
    )


def _none(seen: Yardsticks, verdict: Verdict) -> Finding:
    gain, error = paired_gain(seen.by_token, seen.draft, seen.text)
    return Finding(
        code=NONE,
        severity=Severity.ERROR,
        title=f"No wiring makes this draft work: right in {_share(seen.draft)} at step 1, no more "
        f"than a table of which token follows which ({_share(seen.by_token)})",
        evidence=(_tables(seen), _best(verdict), _unseen(verdict)),
        remedy="Not layers, norms, rotations or map: the weights. Compare them with the training "
        "checkpoint (dropped, merged, transposed or sharded tensors, heads), and head_dim, heads "
        "and rms_norm_eps with its config; or it was trained for another target.",
        figures=_figures(seen) | {"gain": gain, "standard_error": error},
        score=1.0,
    )


def _weak(seen: Yardsticks, verdict: Verdict) -> Finding:
    return Finding(
        code="wiring.weak",
        severity=Severity.WARNING,
        title=f"The draft is right in {_share(seen.draft)} at step 1, and no wiring does better; "
        f"heads that work reach {100 * HEALTHY_FIRST:.0f} % or more",
        evidence=(_tables(seen), _best(verdict), _unseen(verdict)),
        remedy="Not layers, norms, rotations or map: its training, its weights (compare with the "
        "training checkpoint), the target's revision or this text. specbench doctor gap "
        "--train-accuracy A splits it.",
        figures=_figures(seen),
        score=0.6,
    )


def _tables(seen: Yardsticks) -> Fact:
    return Fact(
        text=f"{len(seen.draft)} first guesses of tokens that it can say: the draft right in "
        f"{_share(seen.draft)}; tables made of half the replies and judged on the other half: by "
        f"the last token {_share(seen.by_token)}, by the draft's own guess {_share(seen.by_guess)}",
        where=_WHERE,
    )


def _best(verdict: Verdict) -> Fact:
    first = max([verdict.claimed, *verdict.ranked], key=lambda c: c.first)
    return Fact(
        text=f"of {len(verdict.ranked) + 1} wirings the best at step 1 is {first.change.name}: "
        f"{100 * first.first:.1f} %",
        where="wiring probe",
    )


def _unseen(verdict: Verdict) -> Fact:
    return Fact(text=verdict.unseen, where="wiring probe")


def _figures(seen: Yardsticks) -> dict[str, float | int | str]:
    return {
        "positions": len(seen.draft),
        "draft": float(seen.draft.mean()),
        "by_token": float(seen.by_token.mean()),
        "by_guess": float(seen.by_guess.mean()),
    }


def _share(hits: FloatArray) -> str:
    return f"{100 * float(hits.mean()):.1f} %"


def _z(gain: float, error: float) -> float:
    return gain / error if error > 0 else float("inf")

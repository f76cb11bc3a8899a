"""Was the draft trained on prompts formed otherwise? The same requests, rendered in other ways.

A draft knows the text that followed its training prompts; another chat template, or none, costs 10
to 30 % (engine-spec 10.2, F43). Unlike a wire, a template changes what the target writes, so every
variant has a text and captured streams of its own. Requests are paired, positions are not, and part
of a gain may be that the text is easier: it is a warning, never an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specbench.doctor.findings import FAULT_Z, Fact, Finding, Severity, evidence_score
from specbench.doctor.wiring import LEAST_REQUESTS, STEPS
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.text import TextCodec
from specbench.errors import CheckpointError, RequestError
from specbench.request import Message, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to form the prompts, and how the draft guesses then.

    ``sums`` [R, 2] are right guesses (mean of steps 1 and 2) and positions by request, ``base``
    [R, 2] the same as prompts are formed now; ``limit`` is the z above which it beats them.
    """

    name: str
    sums: np.ndarray
    base: np.ndarray
    limit: float = FAULT_Z

    @property
    def accuracy(self) -> float:
        """Share of right guesses, mean of both steps."""
        return _share(self.sums)

    @property
    def now(self) -> float:
        """The same as prompts are formed now."""
        return _share(self.base)

    @property
    def gain(self) -> float:
        """By how much it is better."""
        return ratio_difference(self.sums, self.base)[0]

    @property
    def error(self) -> float:
        """Standard error of the gain, by request."""
        return ratio_difference(self.sums, self.base)[1]

    @property
    def z(self) -> float:
        """Gain over its standard error."""
        return _z(self.sums, self.base)

    @property
    def most(self) -> float:
        """The largest gain that three standard errors leave possible."""
        return self.gain + FAULT_Z * self.error

    @property
    def better(self) -> bool:
        """It surely beats the prompts as they are formed now."""
        return self.z > self.limit


def _share(sums: np.ndarray) -> float:
    return float(sums[:, 0].sum() / sums[:, 1].sum())


def _z(here: np.ndarray, there: np.ndarray) -> float:
    gain, error = ratio_difference(here, there)
    if error > 0:
        return gain / error
    return math.copysign(math.inf, gain) if gain else 0.0


def renderings(
    pair: ModelPair, draft_folder: Path, requests: Sequence[Request]
) -> Iterator[tuple[str, list[Request]]]:
    """The requests with their prompts formed in every other way that can be had."""
    codec = pair.codec
    ways: list[tuple[str, TextCodec | None, bool]] = [
        ("the chat template, with the reply opened", codec, True),
        ("the chat template, without the reply's opening", codec, False),
        ("raw text, without a chat template", None, False),
    ]
    own = _draft_codec(draft_folder, pair)
    if own is not None:
        ways.insert(0, ("the chat template of the draft's folder", own, True))
    known = [[pair.codec.prompt_ids(request) for request in requests]]
    for name, form, opened in ways:
        try:
            formed = [_formed(request, codec, form, opened) for request in requests]
        except RequestError:  # a template that refuses these messages is no variant
            continue
        ids = [request.prompt_ids or () for request in formed]
        if all(ids) and ids not in known:
            known.append(ids)
            yield name, formed


def _draft_codec(folder: Path, pair: ModelPair) -> TextCodec | None:
    """The template that the draft's folder holds, with the target's tokenizer."""
    try:
        return pair.codec.with_template(folder)
    except CheckpointError:
        return None


def _formed(request: Request, codec: TextCodec, form: TextCodec | None, opened: bool) -> Request:
    messages = request.messages
    if request.prompt is not None:
        messages = (Message(role="user", content=request.prompt),)
    if not messages:
        return request
    if form is None:
        text = "\n".join(m.content for m in messages)
        ids = codec.prompt_ids(replace(request, messages=(), prompt=text))
    else:
        ids = codec.encode(form.render(messages, opened=opened))
    return replace(request, messages=(), prompt=None, prompt_ids=ids)


def probe_templates(
    pair: ModelPair,
    draft: ProbeDraft,
    draft_folder: Path,
    requests: Sequence[Request],
    captured: Capture,
) -> tuple[Variant, ...]:
    """Score the draft, wired as claimed, under other renderings of the same requests.

    Args:
        pair: the loaded models.
        draft: the draft, apart from the engine.
        draft_folder: where a template of its own may be.
        requests: in the order of the texts in ``captured``.
        captured: their text as prompts are formed now.

    Returns:
        A variant for each, in the order of ``renderings``; none when the requests are token ids.
    """
    if not requests or any(r.prompt_ids is not None for r in requests):
        return ()
    base = hits_by_request(draft, captured)
    return tuple(
        Variant(name=name, sums=scored_texts(pair, draft, formed), base=base)
        for name, formed in renderings(pair, draft_folder, requests)
    )


def scored_texts(pair: ModelPair, draft: ProbeDraft, requests: Sequence[Request]) -> np.ndarray:
    """``hits_by_request`` [R, 2] on what the target writes to these requests."""
    texts, wiring = greedy_texts(pair, requests, past=STEPS), draft.claimed
    streams = capture(
        pair, texts, vocab_ids=draft.target_ids(), layers=wiring.slots, taps=(wiring.tap,)
    )
    return hits_by_request(draft, streams)


def hits_by_request(draft: ProbeDraft, captured: Capture) -> np.ndarray:
    """Right guesses (mean of both steps) and positions by request [R, 2], wired as claimed."""
    scores, units = draft.score(captured, draft.claimed, STEPS), len(captured.samples)
    hits = np.bincount(scores.text, weights=scores.hit.mean(1), minlength=units)
    return np.stack([hits, np.bincount(scores.text, minlength=units)], 1)


def ratio_difference(here: np.ndarray, there: np.ndarray) -> tuple[float, float]:
    """Difference of two ratios of sums over the same requests, and its standard error.

    The linearised variance of both, paired by request (Cochran, Sampling Techniques, 1977, 6.13).

    Args:
        here: numerators and denominators by request [R, 2].
        there: likewise.

    >>> ratio_difference(np.array([[1., 2.], [2., 2.]]), np.array([[0., 2.], [1., 2.]]))
    (0.5, 0.0)
    """

    def parts(sums: np.ndarray) -> tuple[float, np.ndarray]:
        top, bottom = sums.sum(0)
        ratio = float(top / bottom)
        return ratio, (sums[:, 0] - ratio * sums[:, 1]) / bottom

    (a, own), (b, other) = parts(here), parts(there)
    m, each = len(here), own - other
    if m < 2:
        return a - b, math.inf
    return a - b, math.sqrt(m / (m - 1) * float((each**2).sum()))


def bos_finding(captured: Capture, bos: int | None) -> Finding | None:
    """A warning when the prompts begin with the start token twice: the template writes it, and the
    tokenizer adds it (F46)."""
    doubled = sum(s.tokens[:2] == (bos, bos) for s in captured.samples)
    if bos is None or 2 * doubled < len(captured.samples):
        return None
    return Finding(
        code="template.bos",
        severity=Severity.WARNING,
        title=f"Prompts begin with the start token {bos} twice",
        evidence=(
            Fact(text=f"{doubled} of {len(captured.samples)} prompts", where="rendered prompts"),
        ),
        remedy="Let either the chat template or the tokenizer add it, as in the draft's training.",
        score=0.5,
    )


def template_finding(variants: Sequence[Variant]) -> Finding | None:
    """A warning when a variant surely beats the prompts as they are formed now.

    Of variants that are not told apart from the best, the first is named.
    """
    surely = [v for v in variants if v.better and len(v.base) >= LEAST_REQUESTS]
    if not surely:
        return None
    most = max(surely, key=lambda v: v.gain)
    best = next(v for v in surely if not _beats(most, v))
    return Finding(
        code="wiring.template",
        severity=Severity.WARNING,
        title=f"The draft guesses better after {best.name}: {100 * best.accuracy:.1f} % right, "
        f"{100 * best.now:.1f} % as prompts are formed now",
        evidence=tuple(
            Fact(
                text=f"{v.name}: {100 * v.gain:+.1f} points (standard error {100 * v.error:.1f}, "
                f"by request, {len(v.base)} requests)",
                where="the target's own text after each",
            )
            for v in sorted(variants, key=lambda v: -v.gain)
        ),
        remedy="Form prompts as in the draft's training. Another prompt makes another text, so "
        "part of the gain may be the text's: compare both on what you serve.",
        figures={"gain": best.gain, "standard_error": best.error, "requests": len(best.base)},
        score=evidence_score(best.gain / max(1 - best.now, 1e-9), best.z),
    )


def _beats(one: Variant, other: Variant) -> bool:
    """Told apart, on the requests that both were scored on."""
    n = min(len(one.sums), len(other.sums))
    return _z(one.sums[:n], other.sums[:n]) > FAULT_Z

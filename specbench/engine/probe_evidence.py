"""Is a stored stream what it is taken for? Told by the values, since the files do not say.

The target reads the beginning of a stored text again, and every stream is held against every
physical index. The last state is told by its own size as well: behind the final norm the RMS of a
state over the norm's weight is 1 in every row, in front of it nearly never (engine-spec 11.1, F55).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture, norm_weights
from specbench.engine.probe_files import RawText
from specbench.engine.probe_text import Sample
from specbench.errors import WorkloadError

CHECK_ROWS = 64
FITS = 0.3  # a quantised or bfloat16 target stays far below; neighbouring layers may not
NORMED_WITHIN = 0.02  # bfloat16 rounds a row's RMS by less than a thousandth


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the values say: ``normed`` of the last state, and a sentence for each stream."""

    normed: bool
    lines: tuple[str, ...]


def judge(pair: ModelPair, raw: RawText, slots: Sequence[int]) -> Evidence:
    """Hold the streams of a text against the target's own.

    Args:
        pair: the loaded target.
        raw: a stored text whose streams are taken for the physical indices ``slots``.
        slots: the draft's wiring, in the order of fc's input.

    Raises:
        WorkloadError: a stream is another layer's than the draft takes, or no layer's of this
            target; the last state is neither what enters the final norm nor what leaves it, or
            not what the file calls it. Each with both numbers.
    """
    rows = min(len(raw.tokens), CHECK_ROWS)
    sample = Sample(
        request_id=raw.where,
        category="",
        tokens=raw.tokens[:rows],
        prompt_len=1,
        output_len=max(rows - 1, 0),
    )
    known = capture(pair, [sample])
    lines = [
        _stream(known, raw.where, place, stream[:rows], slot)
        for place, (stream, slot) in enumerate(zip(raw.streams, slots, strict=True))
    ]
    normed, line = _last(pair, known, raw, rows)
    return Evidence(normed=normed, lines=(*lines, line))


def _stream(known: Capture, where: str, place: int, stream: Tensor, slot: int) -> str:
    apart, claimed = _distances(known, stream), f"physical layer {slot}"
    best = min(apart, key=apart.__getitem__)
    if apart[best] > FITS:
        raise WorkloadError(
            f"{where}: stream {place} is no layer of this target: the nearest is {best}, which "
            f"differs by {apart[best]:.1%}.",
            expected=f"{claimed}, with less than {FITS:.0%}.",
            todo="Give the target and revision that the features were taken from.",
        )
    if best != claimed and apart[best] < apart[claimed] / 2:
        raise WorkloadError(
            f"{where}: stream {place} is {best} (differs by {apart[best]:.2%}), the draft takes "
            f"{claimed} there ({apart[claimed]:.1%}).",
            todo="Take the features with the draft's layer ids, or give --capture-ids.",
        )
    return f"stream {place} is {claimed}: differs by {apart[claimed]:.2%} from the target's own"


def _last(pair: ModelPair, known: Capture, raw: RawText, rows: int) -> tuple[bool, str]:
    n, state = pair.target_spec.n_layers, raw.last[:rows]
    apart = _distances(known, state)
    before, behind = apart[f"physical layer {n}"], apart[_normed_name(n)]
    size, off = rms_over(state.to(pair.device, torch.float64), norm_weights(pair)[n].double())
    normed = behind < before
    told = (
        f"RMS over the final norm's weight is {size:.3f} (after the norm it is 1); differs by "
        f"{before:.2%} from the target's own state before the norm, by {behind:.2%} from that after"
    )
    best = min(apart, key=apart.__getitem__)
    nearest = min(before, behind)
    if nearest > FITS or apart[best] < nearest / 2:
        raise WorkloadError(
            f"{raw.where}: the last state is not this target's ({told}); the nearest is {best}, "
            f"which differs by {apart[best]:.2%}.",
            expected=f"Layer {n} before or after the final norm, within {FITS:.0%}.",
            todo="A list of streams ends with the last state, after those of the draft.",
        )
    kind = "after" if normed else "before"
    if raw.normed is not None and raw.normed is not normed:
        raise WorkloadError(
            f"{raw.where}: the last state is {kind} the final norm, and is stored as the other "
            f"({told}).",
            todo="Dump the features again.",
        )
    if (off < NORMED_WITHIN) is not normed:
        told += "; size alone would say the other"
    return normed, f"last state is {kind} the final norm: {told}"


def _distances(known: Capture, stream: Tensor) -> dict[str, float]:
    """How far a stream is from every physical index, and from the normed last state."""
    last = max(k for _, k in known.features)
    apart = {f"physical layer {k}": distance(stream, x) for (_, k), x in known.features.items()}
    return apart | {_normed_name(last): distance(stream, known.normed)}


def _normed_name(last: int) -> str:
    return f"physical layer {last} after the final norm"


def distance(one: Tensor, other: Tensor) -> float:
    """Median over rows of the relative distance of two [R, H]: |one - other| / |other|."""
    other = other.double()
    apart = (one.to(other) - other).norm(dim=-1) / other.norm(dim=-1).clamp(min=1e-30)
    return float(apart.median())


def rms_over(state: Tensor, weight: Tensor) -> tuple[float, float]:
    """RMS of the rows of ``state`` [R, H] over a norm's weight [H], and how far it is from 1.

    Both are medians over the rows. Columns without weight are left out.

    >>> x, w = torch.tensor([[3.0, -4.0], [30.0, -40.0]]), torch.tensor([2.0, 0.5])
    >>> normed = x / x.pow(2).mean(-1, keepdim=True).sqrt() * w
    >>> [round(v, 6) for v in rms_over(normed, w)], rms_over(x, w)[1] > 1
    ([1.0, 0.0], True)
    """
    heavy = weight.abs() > 1e-3 * weight.abs().max()
    rms = (state[:, heavy] / weight[heavy]).pow(2).mean(-1).sqrt()
    return float(rms.median()), float((rms - 1).abs().median())

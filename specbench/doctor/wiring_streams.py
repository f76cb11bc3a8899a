"""What is it that stands where a layer's stream should be? Named from its values alone.

The question is asked of one chunk of the features that a draft was fed: rows [R, Ht] that should be
the residual stream at one physical index (engine-spec 3.1). The answers are those that code gets
wrong: another layer, a normed or partial stream, rows of other positions, nothing at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from specbench.engine.probe_capture import Capture
from specbench.engine.wiring import Tap

SAME = 1e-3
NEARLY_ALL = 0.995
MOST = 0.9
ROUNDED = 0.15
MOST_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """``kind`` is one of layer, normed, mlp (at ``layer``), empty, scaled (by ``value``), clipped
    (at ``value``), rounded (relative error ``value``), moved (every row by ``value`` positions),
    stale (rows of earlier positions), shuffled (rows of others) and unknown. ``scale`` is its size
    over the claimed layer's; ``share`` the share of rows that this holds for."""

    kind: str
    scale: float
    layer: int | None = None
    value: float = 0.0
    share: float = 1.0

    def told(self, own: int) -> str:
        """In words; ``own`` is the physical index that it should be."""
        words = {
            "layer": f"layer {self.layer}",
            "normed": f"layer {self.layer} after a norm",
            "mlp": f"the MLP output of layer {self.layer} without the residual",
            "empty": "nothing (zeros)",
            "scaled": f"{self.value:.3g} of layer {own}",
            "clipped": f"layer {own} clipped at {self.value:.3g}",
            "rounded": f"layer {own} rounded by {100 * self.value:.1g} %",
            "moved": f"layer {own}, rows moved by {self.value:+.0f}",
            "stale": f"layer {own}, rows of an earlier step",
            "shuffled": f"layer {own}, rows of other positions",
        }
        return words.get(self.kind, "no stream of the target")


def name_stream(
    captured: Capture, texts: Tensor, at: Tensor, chunk: Tensor, own: int
) -> tuple[Stream, Tensor]:
    """What a chunk is.

    Args:
        captured: every stream of the texts.
        texts: text of every row [R].
        at: captured row that every row should be [R].
        chunk: what was fed [R, Ht].
        own: the physical index claimed.

    Returns:
        Its name, and which rows are not the claimed layer's [R].
    """
    right = captured.features[Tap.RESIDUAL, own][at]
    off = _apart(chunk, right)
    scale = float(chunk.norm() / right.norm())
    if _all(~off):
        return Stream(kind="layer", scale=scale, layer=own), off
    found = _elsewhere(captured, at, chunk, own, scale)
    found = found or _changed(chunk, right, scale)
    found = found or _moved(captured, texts, at, chunk, own, scale)
    return found or Stream(kind="unknown", scale=scale), off


def _apart(chunk: Tensor, right: Tensor) -> Tensor:
    """Rows that differ by more than rounding [R]."""
    size = right.norm(dim=-1).clamp(min=1e-12)
    apart: Tensor = (chunk - right).norm(dim=-1) / size
    return apart > SAME


def _all(rows: Tensor) -> bool:
    return float(rows.double().mean()) > NEARLY_ALL


def _elsewhere(
    captured: Capture, at: Tensor, chunk: Tensor, own: int, scale: float
) -> Stream | None:
    """Another layer, or another tap of any layer; the nearest depth first."""
    kinds = {Tap.RESIDUAL: "layer", Tap.NORMED: "normed", Tap.MLP: "mlp"}
    order = sorted(
        captured.features, key=lambda key: (list(kinds).index(key[0]), abs(key[1] - own))
    )
    for tap, k in order:
        if _all(~_apart(chunk, captured.features[tap, k][at])):
            return Stream(kind=kinds[tap], scale=scale, layer=k)
    return None


def _changed(chunk: Tensor, right: Tensor, scale: float) -> Stream | None:
    """The right rows with other values."""
    most = float(chunk.abs().max())
    if most == 0.0:
        return Stream(kind="empty", scale=0.0)
    ratio = float((chunk * right).sum() / (right * right).sum())
    if _all(~_apart(chunk, ratio * right)):
        return Stream(kind="scaled", scale=scale, value=ratio)
    if most < float(right.abs().max()) and _all(~_apart(chunk, right.clamp(-most, most))):
        return Stream(kind="clipped", scale=scale, value=most)
    error = (chunk - right).norm(dim=-1) / right.norm(dim=-1).clamp(min=1e-12)
    if _all(error < ROUNDED):
        return Stream(kind="rounded", scale=scale, value=float(error.mean()))
    return None


def _moved(
    captured: Capture, texts: Tensor, at: Tensor, chunk: Tensor, own: int, scale: float
) -> Stream | None:
    """Rows of the same layer from other positions of the same text."""
    offsets: Counter[int] = Counter()
    stream, rows = captured.features[Tap.RESIDUAL, own], min(len(at), MOST_ROWS)
    for text, (first, end) in enumerate(captured.spans()):
        mine = torch.nonzero(texts[:rows] == text).flatten()
        if not len(mine):
            continue
        apart = torch.cdist(
            chunk[mine], stream[first:end], compute_mode="donot_use_mm_for_euclid_dist"
        )
        near = apart.min(1)
        found = near.values < SAME * stream[first:end].norm(dim=-1)[near.indices]
        moved = (near.indices + first - at[mine])[found]
        offsets.update(moved.tolist())
    known = sum(offsets.values())
    if known < MOST * rows or not any(offsets):
        return None
    offset, count = offsets.most_common(1)[0]
    share = known / rows
    if offset and count > MOST * known:
        return Stream(kind="moved", scale=scale, value=float(offset), share=share)
    kind = "stale" if max(offsets) <= 0 else "shuffled"
    return Stream(kind=kind, scale=scale, share=share)

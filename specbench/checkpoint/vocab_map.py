"""The map from draft to target vocabulary: ``d2t`` holds offsets (engine-spec 1.8)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from specbench.checkpoint.headers import TensorEntry, read_array
from specbench.errors import CheckpointError


def check_vocab_map(
    source: Path, maps: Mapping[str, TensorEntry], vocab: int, draft_vocab: int
) -> str:
    """Validate d2t against t2d and say what they are; target id = draft id + d2t[draft id].

    Raises:
        CheckpointError: a map is missing, mis-shaped, out of range, not the offsets of t2d, or a
            direct map (target ids where offsets belong).
    """
    if draft_vocab > vocab:
        raise CheckpointError(f"{source}: draft_vocab_size={draft_vocab}, vocab_size={vocab}.")
    for name, kind, size in (("d2t", ("I64", "I32"), draft_vocab), ("t2d", ("BOOL", "U8"), vocab)):
        if name in maps and (maps[name].dtype not in kind or maps[name].shape != (size,)):
            raise CheckpointError(
                f"{source}: {name} is {maps[name].dtype} {list(maps[name].shape)}.",
                expected=f"{kind[0]} [{size}].",
            )
    if "d2t" not in maps:
        if draft_vocab == vocab:
            return "none: the vocabularies are equal"
        raise CheckpointError(
            f"{source} has no d2t, but draft_vocab_size={draft_vocab} is below vocab_size={vocab}.",
            expected="Offsets from draft ids to target ids.",
            todo="Export the draft with its vocabulary map.",
        )
    offsets = read_array(maps["d2t"]).astype(np.int64)
    ids = np.arange(draft_vocab, dtype=np.int64) + offsets
    mask = read_array(maps["t2d"]).astype(bool) if "t2d" in maps else None
    _check_direct(source, offsets, ids, mask, vocab)
    if (np.diff(offsets) < 0).any() or ids[0] < 0 or ids[-1] >= vocab or offsets[0] < 0:
        raise CheckpointError(
            f"{source}: d2t is not a list of offsets (first {offsets[0]}, last {offsets[-1]}).",
            expected=f"Non-decreasing offsets that stay inside 0..{vocab - 1}.",
        )
    if mask is not None and not np.array_equal(np.flatnonzero(mask), ids):
        raise CheckpointError(
            f"{source}: t2d marks {int(mask.sum())} target ids, and they are not those of d2t "
            f"({draft_vocab}).",
            expected="t2d marks exactly the ids that arange + d2t reaches.",
        )
    return (
        "offsets, checked against t2d" if mask is not None else "offsets, no t2d to check against"
    )


def _check_direct(
    source: Path,
    offsets: np.ndarray,
    ids: np.ndarray,
    mask: np.ndarray | None,
    vocab: int,
) -> None:
    rising = bool((np.diff(offsets) > 0).all()) and len(offsets) > 1
    if mask is not None:
        direct = np.array_equal(np.flatnonzero(mask), offsets) and not np.array_equal(ids, offsets)
    else:
        direct = rising and bool(ids[-1] >= vocab) and bool(offsets[-1] < vocab)
    if direct:
        raise CheckpointError(
            f"{source}: d2t holds target ids (a direct map), not offsets.",
            expected="target id = draft id + d2t[draft id].",
            todo="Subtract arange from it and export again.",
        )

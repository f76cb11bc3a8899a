"""The map from draft to target vocabulary: ``d2t`` holds offsets (engine-spec 1.8)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from specbench.checkpoint.headers import TensorEntry, read_array
from specbench.errors import CheckpointError

MASKS = ("BOOL", "U8", "I8", "I32", "I64")
DIRECT = "direct: target ids, as asked"


def check_vocab_map(
    source: Path,
    maps: Mapping[str, TensorEntry],
    vocab: int,
    draft_vocab: int,
    meaning: str = "offsets",
) -> str:
    """Validate d2t against t2d and say what they are; target id = draft id + d2t[draft id].

    ``meaning`` "direct" asks for a map that holds the target ids themselves.

    Raises:
        CheckpointError: a map is missing, mis-shaped, out of range, not the offsets of t2d, or a
            direct map (target ids where offsets belong).
    """
    _check_kinds(source, maps, vocab, draft_vocab)
    if "d2t" not in maps:
        if draft_vocab == vocab:
            return "none: the vocabularies are equal"
        raise CheckpointError(
            f"{source} has no d2t, but draft_vocab_size={draft_vocab} is below vocab_size={vocab}.",
            expected="Offsets from draft ids to target ids.",
            todo="Export the draft with its vocabulary map.",
        )
    offsets = read_array(maps["d2t"]).astype(np.int64)
    _check_range(source, offsets, vocab)
    ids = np.arange(draft_vocab, dtype=np.int64) + offsets
    mask = _mask(source, maps["t2d"]) if "t2d" in maps else None
    if meaning == "direct":
        _check_asked_direct(source, offsets, mask, vocab)
        return DIRECT
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


def _check_kinds(
    source: Path, maps: Mapping[str, TensorEntry], vocab: int, draft_vocab: int
) -> None:
    """Sizes and dtypes, before a value is read."""
    if draft_vocab > vocab:
        raise CheckpointError(f"{source}: draft_vocab_size={draft_vocab}, vocab_size={vocab}.")
    for name, kind, size in (("d2t", ("I64", "I32"), draft_vocab), ("t2d", MASKS, vocab)):
        if name in maps and (maps[name].dtype not in kind or maps[name].shape != (size,)):
            raise CheckpointError(
                f"{source}: {name} is {maps[name].dtype} {list(maps[name].shape)}.",
                expected=f"{kind[0]} [{size}].",
            )


def _check_range(source: Path, values: np.ndarray, vocab: int) -> None:
    """Neither an offset nor a target id lies outside; sums and steps of such cannot overflow."""
    outside = values[(values < 0) | (values >= vocab)]
    if len(outside):
        raise CheckpointError(
            f"{source}: d2t is not a list of offsets: it holds {outside[0]}.",
            expected=f"Values in 0..{vocab - 1}.",
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
            todo="Give --d2t direct, or write it as offsets: specbench convert --d2t direct.",
        )


def _mask(source: Path, entry: TensorEntry) -> np.ndarray:
    values = read_array(entry)
    if ((values != 0) & (values != 1)).any():
        raise CheckpointError(
            f"{source}: t2d holds values other than 0 and 1.", expected="A mask of target ids."
        )
    return values.astype(bool)


def _check_asked_direct(source: Path, ids: np.ndarray, mask: np.ndarray | None, vocab: int) -> None:
    """Target ids in ascending order, as every training code writes them (engine-spec 1.8)."""
    rising = bool((np.diff(ids) > 0).all()) and ids[0] >= 0 and ids[-1] < vocab
    if not rising or (mask is not None and not np.array_equal(np.flatnonzero(mask), ids)):
        raise CheckpointError(
            f"{source}: d2t was said to hold target ids, and does not (first {ids[0]}, last "
            f"{ids[-1]}).",
            expected="Ascending target ids, those that t2d marks.",
            todo="Drop --d2t direct.",
        )

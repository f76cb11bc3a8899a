"""Weights that hold nothing: a draft's tensor of zeros, or of values that are not finite.

An export that gathers shards wrongly, or a merge that finds no source, leaves zeros of the right
shape; every loader takes them. The first and last rows of each tensor are read, and the whole of
one that is zero there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specbench.checkpoint.headers import TensorEntry
from specbench.doctor.checks_ids import claim_of
from specbench.doctor.checks_subject import Subject
from specbench.doctor.findings import Fact, Finding, Severity

ROWS = 16
_KINDS = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}
_ENDLESS = 0x7F80  # exponent of what is not finite in bfloat16


def check_values(subject: Subject) -> Iterator[Finding]:
    """Zeros in place of weights, also of one layer's columns of fc, and what is not finite.

    Biases may be zero.
    """
    for name, entry in sorted((subject.draft.tensors or {}).items()):
        values = None if name.endswith(".bias") else _mapped(entry)
        if values is None:
            continue
        ends = np.concatenate([values[:ROWS], values[-ROWS:]])
        if not _finite(ends, entry):
            yield _finding(subject, name, "holds values that are not finite")
        elif _zero(ends) and _zero(values):
            yield _finding(subject, name, "is all zeros")
        elif name == "fc.weight":
            for layer in _lost(subject, values, ends):
                yield _finding(subject, name, f"is all zeros in the columns of layer {layer}")


def _mapped(entry: TensorEntry) -> np.ndarray | None:
    """The tensor in its file; bfloat16 as bits without a sign. None for maps and empty ones."""
    if entry.dtype not in _KINDS or len(entry.shape) not in (1, 2) or 0 in entry.shape:
        return None
    return np.memmap(
        entry.path, dtype=_KINDS[entry.dtype], mode="r", offset=entry.begin, shape=entry.shape
    )


def _finite(values: np.ndarray, entry: TensorEntry) -> bool:
    if entry.dtype == "BF16":
        return bool((values & _ENDLESS != _ENDLESS).all())
    return bool(np.isfinite(values).all())


def _zero(values: np.ndarray) -> bool:
    """Bits of bfloat16 but for the sign, or numbers."""
    return not (values & 0x7FFF if values.dtype == np.dtype("<u2") else values).any()


def _lost(subject: Subject, values: np.ndarray, ends: np.ndarray) -> Iterator[int]:
    """Physical layers whose columns of fc are all zeros."""
    claim = claim_of(subject)
    layers = () if claim is None else claim.physical
    width = subject.draft.feature_width() or 0
    if not width or values.ndim != 2 or values.shape[1] != len(layers) * width:
        return
    for slot, layer in enumerate(layers):
        columns = slice(slot * width, (slot + 1) * width)
        if _zero(ends[:, columns]) and _zero(values[:, columns]):
            yield layer


def _finding(subject: Subject, name: str, what: str) -> Finding:
    return Finding(
        code="tensors.values",
        severity=Severity.ERROR,
        title=f"{name} {what}",
        evidence=(Fact(text=what, where=f"{subject.draft.path.name}: {name}"),),
        remedy="Export the draft again; the training checkpoint tells whether it was trained.",
        score=0.95,
    )

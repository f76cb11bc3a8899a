"""Weights that were quantised once: their values tell, whatever dtype they are stored in now.

A draft that inherits its target's quantisation, or a target that was quantised after the draft was
trained, is often stored in float16 again and looks like any other file (engine-spec 10.2, F31,
F32). But rounding leaves few different values: 8 bits at most 128 absolute ones in a row, 4 bits
at most 8 in a group. Rows of trained weights in bfloat16 have about 350 of 512.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specbench.checkpoint.headers import TensorEntry
from specbench.doctor.checks_subject import Side, Subject
from specbench.doctor.findings import Fact, Finding, Severity

# Published quantised and in no other form: what a draft was trained on is most likely just that.
AS_PUBLISHED = (
    *("GptOssForCausalLM", "DeepseekV3ForCausalLM"),
    *("KimiK2ForCausalLM", "KimiK25ForConditionalGeneration"),
)
ROWS = 16
LEAST_COLUMNS = 512
MOST_IN_ROW = 128
GROUP = 32
MOST_IN_GROUP = 9
_KINDS = {"F16": "<f2", "BF16": "<u2", "F32": "<f4"}


def check_quantised(subject: Subject) -> Iterator[Finding]:
    """A target whose config says that it is quantised, beside a draft that is not."""
    target, key = subject.target, "quantization_config"
    if subject.draft.whole.get(key) or not (target.whole.get(key) or target.config.get(key)):
        return
    usual = subject.arch in AS_PUBLISHED
    yield Finding(
        code="dtype.quantised",
        severity=Severity.NOTE if usual else Severity.WARNING,
        title="The target is quantised and the draft is not: was it trained on these features?",
        evidence=(
            Fact(text="present", where=target.at(key)),
            *([Fact(text="it is published so", where=subject.arch)] if usual else ()),
        ),
        remedy="SGLang: --speculative-draft-model-quantization unquant; compare with the "
        "unquantised target.",
        score=0.5,
    )


def check_rounded(subject: Subject) -> Iterator[Finding]:
    """The draft's and the target's weights, by a few rows of one matrix each."""
    middle = (subject.layers or 0) // 2
    for name, side, wanted in (
        ("draft", subject.draft, "midlayer.mlp.down_proj.weight"),
        ("target", subject.target, f"model.layers.{middle}.mlp.down_proj.weight"),
    ):
        entry = (side.tensors or {}).get(wanted)
        told = None if entry is None else _rounded(entry)
        if told is not None:
            yield _finding(name, side, wanted, told)


def _finding(name: str, side: Side, tensor: str, told: str) -> Finding:
    other = "features that it was not trained on" if name == "target" else "other weights"
    return Finding(
        code="dtype.rounded",
        severity=Severity.WARNING,
        title=f"The {name}'s weights were quantised and cast back: {told}",
        evidence=(Fact(text=told, where=f"{side.path.name}: {tensor}, first {ROWS} rows"),),
        remedy=f"The draft then works with {other}: measure with the {name} before quantisation, "
        "and compare.",
        score=0.5,
    )


def _rounded(entry: TensorEntry) -> str | None:
    """How few different values there are, None where they are many or cannot be judged."""
    if len(entry.shape) != 2 or entry.dtype not in _KINDS or entry.shape[1] < LEAST_COLUMNS:
        return None
    kind = np.dtype(_KINDS[entry.dtype])
    rows, columns = min(ROWS, entry.shape[0]), entry.shape[1]
    with entry.path.open("rb") as file:
        file.seek(entry.begin)
        raw = np.frombuffer(file.read(rows * columns * kind.itemsize), dtype=kind)
    sign = np.uint16(0x7FFF) if entry.dtype == "BF16" else None
    sizes = (np.abs(raw) if sign is None else raw & sign).reshape(rows, columns)
    whole = _distinct(sizes)
    if whole <= MOST_IN_ROW:
        return f"{whole} different sizes in a row of {columns}"
    few = _distinct(sizes[:, : columns - columns % GROUP].reshape(-1, GROUP))
    if few <= MOST_IN_GROUP:
        return f"{few} different sizes in a group of {GROUP}"
    return None


def _distinct(rows: np.ndarray) -> int:
    """Median number of different values by row."""
    return int(np.median([len(np.unique(row)) for row in rows]))

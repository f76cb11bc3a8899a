"""For every shape its likely causes in order, and the next cheapest test (engine-spec 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """``why`` in order of likelihood, each with its F-numbers; ``test`` is the next to make."""

    why: tuple[str, ...]
    test: str


_CAUSES: Mapping[str, Causes] = {
    "one": Causes(
        why=(
            "EAGLE selected for an EAGLE-3 head, or fc skipped (F8, F9)",
            "features dropped by a wrapper (F7)",
            "d2t read the wrong way, missing or zero (F11, F12)",
            "head tied, or tensors dropped by the loader (F50, F51)",
        ),
        test="specbench doctor --static --launch '...' needs no forward pass and names most.",
    ),
    "first": Causes(
        why=(
            "default layer ids, or ids off by one (F1, F2, F3)",
            "embedding in place of a layer, or another order (F5, F6)",
            "token and feature paired a row apart (F23)",
            "a norm flag ignored (F15, F16)",
            "another chat template than in training (F43)",
        ),
        test="specbench doctor with --target and --draft scores every one offline.",
    ),
    "tail": Causes(
        why=(
            "recurrent state taken before or after its norm wrongly (F14)",
            "norm_before_residual mis-set (F15)",
            "drafted rows a position late (F22)",
            "draft cache not rebuilt after a verify (F26)",
            "second layer's norm, or a parallel draft's mask (F48, F58)",
        ),
        test="specbench doctor with --target and --draft: step 2 is scored apart from step 1.",
    ),
    "flat": Causes(
        why=(
            "draft or target quantised after training (F31, F32)",
            "embedding replaced (F18)",
            "trained on other text, or for another revision of the target (F44, F56)",
            "sampling at a temperature (F38)",
            "rotation base (F19)",
        ),
        test="run greedy and unquantised once; if that is better, the cause is named.",
    ),
    "long": Causes(
        why=(
            "draft's positions end, or rotations are scaled otherwise (F19, F20, F21)",
            "row at a chunk's border (F24)",
            "fp8 cache of the draft (F33)",
            "the text itself: later text may be harder",
        ),
        test="the same text cut short: if acceptance comes back, it is the length.",
    ),
    "category": Causes(
        why=(
            "the text is harder: open prose against code or arithmetic",
            "tokens that the draft's vocabulary lacks (F13)",
            "images, grammars, penalties (F47, F60)",
        ),
        test="share of that category's tokens outside the draft's vocabulary.",
    ),
    "cycle": Causes(
        why=(
            "graphs captured with default layer ids (F4)",
            "no draft extend after a verify, or a wrong row of it (F26, F27)",
            "cache compaction of trees (F28)",
            "border rows of chunks or cached prefixes (F24, F25)",
        ),
        test="run once with graphs off (--disable-cuda-graph): --control graph=DIR.",
    ),
    "graph": Causes(
        why=(
            "graphs captured with default layer ids (F4)",
            "stale feature buffer in the extend graph (F10)",
            "too few slots for trees in graphs (F29)",
        ),
        test="compare features of one verify, eager and replayed.",
    ),
    "batch": Causes(
        why=(
            "padding rows leak (F53)",
            "rows permuted across experts or data-parallel ranks (F36)",
            "too few slots for trees in graphs (F29)",
        ),
        test="the same prompts at batch size 1 and 4: --control batch=DIR.",
    ),
    "rank": Causes(
        why=(
            "partial sums captured under all-reduce fusion (F34)",
            "embedding shards (F18)",
            "ranks disagree on tokens (F35, F36)",
        ),
        test="the same run with all-reduce fusion off.",
    ),
    "none": Causes(
        why=(
            "acceptance is right and speed is limited by the cost of a step",
            "a figure defined otherwise than you expect (F42)",
            "thresholds below 1 or simulated acceptance (F39)",
        ),
        test="specbench report --definitions, and break-even in the sweep's report.",
    ),
    "unsure": Causes(
        why=("more steps, by position, would tell",),
        test="a run of at least 12 requests (specbench sweep --server URL), or --steps N.",
    ),
}


def causes_of(shape: str) -> Causes:
    """The entry of a shape."""
    return _CAUSES[shape]

"""Which weight lies how on the ranks, and what a rank's share of a model looks like.

The rules are names, as every checkpoint has them (engine-spec 9): query, key, value, gate and up by
output rows, o_proj and down by input columns, embedding and head by vocabulary rows, all else
whole on every rank. A name that no rule covers is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from specbench.engine.models.weights import Part
from specbench.engine.parallel import Ranks
from specbench.errors import ConfigError
from specbench.modelspec import DraftSpec, ExpertSpec, LayerShape, TargetSpec

Spec = TypeVar("Spec", TargetSpec, DraftSpec)

_KV = re.compile(r"\.[kv]_proj\.(weight|bias)$")
_VOCABULARY = re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$")
_ROW_BIAS = re.compile(r"\.(o_proj|down_proj)\.bias$|\.down_proj_bias$")
_CUT: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"\.(q|q_b|kv_b|gate|up)_proj\.(weight|bias)$|\.sinks$"), 0),
    (re.compile(r"\.(o|down)_proj\.weight$"), 1),
    (re.compile(r"\.experts\.gate_up_proj$"), 2),  # gpt-oss: all experts in one, [E, in, out]
    (re.compile(r"\.experts\.(gate_up_proj_bias|down_proj)$"), 1),
)
_WHOLE = re.compile(
    r"norm(\.\d+)?\.weight$|\.(q_a_proj|kv_a_proj_with_mqa)\.(weight|bias)$"
    r"|\.mlp\.(gate|router)\.(weight|bias|e_score_correction_bias)$"
    r"|^fc\.(weight|bias)$|^(d2t|t2d)$"
)


def cutter(spec: TargetSpec | DraftSpec, ranks: Ranks) -> Part:
    """What keeps of a named tensor this rank's share.

    Embedding and head come as distributed tensors, since their rows may be shared unevenly; all
    others as the plain local shard.
    """
    of_draft = isinstance(spec, DraftSpec)

    def part(name: str, value: Tensor) -> Tensor:
        if _VOCABULARY.search(name):
            return ranks.shard(value, 0)
        if _KV.search(name):
            return ranks.shard(_kv_for_all(value, spec.shape.kv_heads, ranks.count), 0).to_local()
        if _ROW_BIAS.search(name):  # a draft adds it after the sum, a target before
            return value if of_draft or ranks.rank == 0 else torch.zeros_like(value)
        for pattern, dim in _CUT:
            if pattern.search(name):
                return ranks.shard(value, dim).to_local()
        if not _WHOLE.search(name):
            raise ConfigError(
                f"no rule says how {name} of a {_kind(spec)} lies on {ranks.count} ranks.",
                todo="Run it with --tensor-parallel 1.",
            )
        return value

    return part


def _kv_for_all(value: Tensor, kv_heads: int, count: int) -> Tensor:
    """Key or value rows with each head repeated where there are fewer heads than ranks."""
    if kv_heads >= count:
        return value
    heads: Tensor = torch.unflatten(value, 0, (kv_heads, -1))
    return heads.repeat_interleave(count // kv_heads, 0).flatten(0, 1)


def local_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same names with distributed tensors as this rank's plain shard."""
    return {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in tensors.items()
    }


def local_spec(spec: Spec, ranks: Ranks) -> Spec:
    """``spec`` with one rank's share of heads and inner widths; hidden and vocabulary stay."""
    shape, count = spec.shape, ranks.count
    own = replace(
        shape,
        heads=shape.heads // count,
        kv_heads=max(shape.kv_heads // count, 1),
        inner=shape.inner // count,
    )
    return replace(spec, shape=own)


def check_shares(spec: TargetSpec | DraftSpec, count: int) -> None:
    """Hold heads and widths against the number of ranks.

    Raises:
        ConfigError: something does not divide; both numbers are named.
    """
    kind, shape = _kind(spec), spec.shape
    latent = spec.latent if isinstance(spec, DraftSpec) else spec.attention.latent
    parts = {"query heads": shape.heads, "inner width": shape.inner}
    if isinstance(spec, TargetSpec) and spec.experts is not None:
        parts |= _expert_parts(spec.experts)
    for name, size in parts.items():
        if size % count:
            raise _refusal(count, f"does not divide the {name} {size} of the {kind}")
    if latent is None and not _kv_fit(shape, count):
        raise _refusal(
            count,
            f"and the {shape.kv_heads} key/value heads of the {kind}: neither divides the other",
        )


def _kv_fit(shape: LayerShape, count: int) -> bool:
    """Whole heads on each rank, or each head on a whole number of ranks."""
    return shape.kv_heads % count == 0 or count % shape.kv_heads == 0


def _expert_parts(experts: ExpertSpec) -> dict[str, int]:
    shared = {} if experts.shared_inner is None else {"shared expert's width": experts.shared_inner}
    return {"inner width of experts": experts.inner} | shared


def _refusal(count: int, why: str) -> ConfigError:
    return ConfigError(
        f"tensor_parallel={count} {why}.", todo="Choose a --tensor-parallel that divides it."
    )


def _kind(spec: TargetSpec | DraftSpec) -> str:
    if isinstance(spec, DraftSpec):
        return f"draft ({spec.file_format})"
    return f"target ({spec.family})"

"""Targets and drafts on several ranks: the usual classes on local shards, joined where needed.

A block's two sums (after o_proj and down_proj), the rows of the embedding and the columns of a head
are all that ranks exchange. In models of modules torch's parallel styles do it; where products are
``Projection``s, two kinds of them do. Both end in the same redistribution (``Ranks``).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    parallelize_module,
)

from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.draft_stack import StackedDraft
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Block, Norm, Projection, Table
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.weights import Part
from specbench.engine.parallel import Ranks
from specbench.engine.parallel_plan import check_shares, cutter, local_spec, local_tensors
from specbench.modelspec import DraftSpec, TargetSpec


class SummedProjection(Projection):
    """A product whose input columns lie on the ranks: each has a part of the sum."""

    __slots__ = ("_ranks",)

    def __init__(self, own: Projection, ranks: Ranks) -> None:
        self.matrix, self.panels, self._ranks = own.matrix, None, ranks

    def __call__(self, x: Tensor) -> Tensor:
        """The whole product [rows, out] from this rank's columns of ``x``."""
        return self._ranks.summed(torch.mm(x, self.matrix))

    def into(self, x: Tensor, out: Tensor) -> None:
        """Write the whole product to ``out``."""
        out.copy_(self(x))

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """Add the whole product to ``total``, which every rank holds."""
        total.add_(self(x))

    def plus(self, base: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """``base``, which every rank holds, and the whole product."""
        return torch.add(base, self(x), out=out)


class GatheredProjection(Projection):
    """A head whose vocabulary rows lie on the ranks; called, it gives the scores of all."""

    __slots__ = ("_ranks", "_width")

    def __init__(self, own: Projection, ranks: Ranks, width: int) -> None:
        self.matrix, self.panels = own.matrix, None
        self._ranks, self._width = ranks, width

    def __call__(self, x: Tensor) -> Tensor:
        """Scores [rows, V] over the whole vocabulary."""
        return self._ranks.gathered(torch.mm(x, self.matrix), self._width)


class ShardedTable(Table):
    """An embedding whose vocabulary rows lie on the ranks."""

    def __init__(self, weight: DTensor, ranks: Ranks) -> None:
        self._weight, self._ranks = weight, ranks

    def __call__(self, tokens: Tensor) -> Tensor:
        """Rows [R, H] of ids [R], from whichever ranks have them."""
        return self._ranks.rows(self._weight, tokens)


class ShardedMaker:
    """Makes one rank's share of a pair."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    @property
    def facts(self) -> dict[str, str]:
        """The number of ranks and what joins them; the torch forward runs."""
        return {"kernels": "torch"} | self.ranks.facts

    def check(self, spec: TargetSpec, draft: DraftSpec | None) -> None:
        """Hold heads and widths of both against the number of ranks.

        Raises:
            ConfigError: something does not divide.
        """
        check_shares(spec, self.ranks.count)
        if draft is not None:
            check_shares(draft, self.ranks.count)

    def part(self, spec: TargetSpec | DraftSpec) -> Part:
        """This rank's share of each tensor, by name."""
        return cutter(spec, self.ranks)

    def target(
        self, spec: TargetSpec, tensors: Mapping[str, Tensor], capture: tuple[int, ...]
    ) -> LlamaTarget | DecoderTarget:
        """The target on this rank's shards."""
        return sharded_target(spec, tensors, capture, self.ranks)

    def draft(
        self,
        spec: DraftSpec,
        tensors: Mapping[str, Tensor],
        embedding: Tensor,
        target_norm: Norm | None,
    ) -> Eagle3Draft:
        """The draft on this rank's shards."""
        return sharded_draft(spec, tensors, embedding, target_norm, self.ranks)


def sharded_target(
    spec: TargetSpec, tensors: Mapping[str, Tensor], capture: tuple[int, ...], ranks: Ranks
) -> LlamaTarget | DecoderTarget:
    """A target on this rank's shards.

    Args:
        spec: of the whole model; the target's own ``spec`` is its share.
        tensors: as ``parallel_plan.cutter`` cut them.
        capture: physical indices whose residual stream is captured.
        ranks: all of them.
    """
    own, local = local_spec(spec, ranks), local_tensors(tensors)
    embedding = _shards(tensors["model.embed_tokens.weight"])
    target: LlamaTarget | DecoderTarget
    if spec.plain:
        target = LlamaTarget(own, local, capture, whole=False)
        for block in target.blocks:
            _sum_block(block, ranks)
        target.head = GatheredProjection(target.head, ranks, spec.vocab)
    else:
        target = DecoderTarget(own, local, capture)
        head = embedding if spec.tied else _shards(tensors["lm_head.weight"])
        target.head.weight = nn.Parameter(head, requires_grad=False)
        parallelize_module(target, ranks.mesh, _plan())
    target.embed = ShardedTable(embedding, ranks)
    return target


def _plan() -> dict[str, ParallelStyle]:
    """What is joined in a ``DecoderTarget``: blocks give sums, the head its columns.

    A whole block is summed once: experts and the shared expert are parts of one sum.
    """

    def summed() -> ParallelStyle:
        return PrepareModuleOutput(output_layouts=Partial(), desired_output_layouts=Replicate())

    return {
        "layers.*.attention": summed(),
        "layers.*.feed_forward": summed(),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }


def sharded_draft(
    spec: DraftSpec,
    tensors: Mapping[str, Tensor],
    embedding: Tensor,
    target_norm: Norm | None,
    ranks: Ranks,
) -> Eagle3Draft:
    """A draft on this rank's shards; fc, norms and the map of its vocabulary are whole.

    Args:
        spec: of the whole draft; the draft's own ``spec`` is its share.
        tensors: as ``parallel_plan.cutter`` cut them, under canonical names.
        embedding: the draft's own or the target's, sharded by rows.
        target_norm: the target's final norm, for drafts on its last normed state.
        ranks: all of them.
    """
    own, local, table = local_spec(spec, ranks), local_tensors(tensors), _shards(embedding)
    if spec.stacked:
        draft: Eagle3Draft = StackedDraft(own, local, table.to_local(), target_norm)
    else:
        draft = Eagle3Draft(own, local, table.to_local(), whole=False)
    if isinstance(draft, StackedDraft):
        for layer in draft.layers:
            *others, out = layer.attention.projections
            layer.attention.projections = (*others, SummedProjection(out, ranks))
            *others, down = layer.mlp
            layer.mlp = (*others, SummedProjection(down, ranks))
    else:
        _sum_block(draft.block, ranks)
    draft.head = GatheredProjection(draft.head, ranks, spec.draft_vocab)
    draft.embed = ShardedTable(table, ranks)
    return draft


def _sum_block(block: Block, ranks: Ranks) -> None:
    block.out = SummedProjection(block.out, ranks)
    block.down = SummedProjection(block.down, ranks)


def _shards(value: Tensor) -> DTensor:
    assert isinstance(value, DTensor), "vocabulary rows are cut by parallel_plan.cutter"
    return value

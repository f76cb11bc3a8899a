"""Who makes the models of a pair from tensors: here one process, in ``parallel_models`` each rank.

``ModelPair.load`` takes either; they answer the same calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.draft_stack import StackedDraft
from specbench.engine.models.eagle3 import Eagle3Draft
from specbench.engine.models.layers import Norm
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.weights import Part
from specbench.engine.native.build import Native
from specbench.engine.native.choice import kernel_facts, new_draft, new_target
from specbench.engine.native.models import NativeDraft
from specbench.modelspec import DraftSpec, TargetSpec


class WholeMaker:
    """Whole models in this process, with the chosen kernels."""

    ranks = None  # what the models lie on; ShardedMaker has them

    def __init__(self, kernels: Native) -> None:
        self._kernels, self._general_draft = kernels, False

    @property
    def facts(self) -> dict[str, str]:
        """Which forward runs; the draft's own where the compiled one cannot run it."""
        apart = self._general_draft and self._kernels.library is not None
        return kernel_facts(self._kernels) | ({"draft_kernels": "torch"} if apart else {})

    def check(self, spec: TargetSpec, draft: DraftSpec | None) -> None:
        """Any model will do."""

    def part(self, spec: TargetSpec | DraftSpec) -> Part | None:
        """What is kept of each tensor; None for all of it."""
        return None

    def target(
        self, spec: TargetSpec, tensors: Mapping[str, Tensor], capture: tuple[int, ...]
    ) -> LlamaTarget | DecoderTarget:
        """The target with the chosen forward."""
        return new_target(spec, tensors, capture, self._kernels)

    def draft(
        self,
        spec: DraftSpec,
        tensors: Mapping[str, Tensor],
        embedding: Tensor,
        target_norm: Norm | None,
    ) -> Eagle3Draft:
        """The draft with the chosen forward; torch's for what is more than one Llama layer, or
        does not fit the compiled one."""
        if spec.stacked:
            draft: Eagle3Draft = StackedDraft(spec, tensors, embedding, target_norm)
        else:
            draft = new_draft(spec, tensors, embedding, self._kernels)
        self._general_draft = not isinstance(draft, NativeDraft)
        return draft

"""Which forward runs: the compiled one where it can, torch's elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specbench.config import EngineConfig
from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.eagle3 import MAX_TABLE_BYTES, Eagle3Draft
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.native.build import Native, native
from specbench.engine.native.models import NativeDraft, NativeTarget, can_run
from specbench.errors import ConfigError
from specbench.modelspec import DraftSpec, TargetSpec

TORCH = Native(library=None, told="torch")


def choose_kernels(
    config: EngineConfig, spec: TargetSpec, dtype: torch.dtype, device: torch.device
) -> Native:
    """What ``config.kernels`` comes to on this machine; ``told`` goes into the provenance.

    Raises:
        ConfigError: native was asked for, and cannot run.
    """
    if config.kernels == "torch":
        return TORCH
    reason = "it runs Llama layers in float32, on a CPU with one thread, widths multiples of 8"
    fits = spec.plain and can_run(spec.shape, dtype, device)
    found = native() if fits else Native(library=None, told="torch")
    if found.library is None and config.kernels == "native":
        told = found.told.removeprefix("torch: ")
        raise ConfigError(
            f"kernels=native cannot run: {reason if told == 'torch' else told}.",
            todo="Use kernels=auto or torch.",
        )
    return found


def kernel_facts(kernels: Native) -> dict[str, str]:
    """What of a run's provenance the choice decides."""
    attention = {} if kernels.library is None else {"attention": "native"}
    return {"kernels": kernels.told} | attention


def new_target(
    spec: TargetSpec, tensors: Mapping[str, Tensor], capture: tuple[int, ...], kernels: Native
) -> LlamaTarget | DecoderTarget:
    """The target with the chosen forward; layers beyond Llama's run the general one."""
    if not spec.plain:
        return DecoderTarget(spec, tensors, capture)
    if kernels.library is None:
        return LlamaTarget(spec, tensors, capture)
    return NativeTarget(spec, tensors, capture, kernels.library)


def new_draft(
    spec: DraftSpec, tensors: Mapping[str, Tensor], embedding: Tensor, kernels: Native
) -> Eagle3Draft:
    """The draft with the chosen forward; torch's where widths or the token table do not fit."""
    shape = spec.shape
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    table_bytes = embedding.shape[0] * width * embedding.element_size()
    fit = can_run(shape, embedding.dtype, embedding.device) and table_bytes <= MAX_TABLE_BYTES
    if kernels.library is None or not fit:
        return Eagle3Draft(spec, tensors, embedding)
    return NativeDraft(spec, tensors, embedding, kernels.library)

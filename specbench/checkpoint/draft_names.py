"""One name for every draft tensor, whatever the code base calls it (engine-spec 1.2 to 1.6).

The first layer is ``midlayer`` here, as in SafeAILab and SpecForge files; speculators and latent
drafts write ``layers.0``, and modelopt's older exports of several layers ``midlayer.0`` and
``midlayer.1``. Older exports call the per-feature norms aux_norm_low, mid and high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from specbench.checkpoint.folder import Folder
from specbench.errors import CheckpointError

T = TypeVar("T")
_LEGACY = {
    "aux_norm_low.weight": "fc_norm.0.weight",
    "aux_norm_mid.weight": "fc_norm.1.weight",
    "aux_norm_high.weight": "fc_norm.2.weight",
}
_FIRST = re.compile(r"^(layers|midlayer)\.0\.")
_UPPER = re.compile(r"^midlayer\.([1-9]\d*)\.")


def canonical(name: str) -> str:
    """The name that the engine uses.

    >>> canonical("layers.0.mlp.up_proj.weight"), canonical("layers.1.mlp.up_proj.weight")
    ('midlayer.mlp.up_proj.weight', 'layers.1.mlp.up_proj.weight')
    >>> canonical("midlayer.1.mlp.up_proj.weight")
    'layers.1.mlp.up_proj.weight'
    """
    return _LEGACY.get(name) or _UPPER.sub(r"layers.\1.", _FIRST.sub("midlayer.", name))


def by_canonical(tensors: Mapping[str, T]) -> dict[str, T]:
    """The same values under their canonical names.

    Raises:
        CheckpointError: two names of the file mean one tensor.
    """
    named = {canonical(name): value for name, value in tensors.items()}
    if len(named) != len(tensors):
        twice = sorted(n for n in tensors if n != canonical(n) and canonical(n) in tensors)
        raise CheckpointError(
            f"{', '.join(twice[:8])} and {', '.join(map(canonical, twice[:8]))} are the same "
            "tensors under two names.",
            todo="Keep one spelling.",
        )
    return named


def with_canonical_names(folder: Folder) -> Folder:
    """The folder with canonical names; each entry still knows its name in the file."""
    return replace(folder, tensors=by_canonical(folder.tensors))


def layer_prefix(index: int) -> str:
    """Canonical prefix of layer ``index``."""
    return "midlayer" if index == 0 else f"layers.{index}"

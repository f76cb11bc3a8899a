"""Stage grow: a deeper target from a trained pair, by blocks that begin as the identity.

Behind each layer come copies of it whose output projections are zero, so the grown target says at
first what the old one says (block expansion, Wu et al. 2024, arXiv 2401.02415), and the old draft,
with its features taken behind the same blocks, drafts as well as before. Later stages train both.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from specbench.errors import ConfigError
from tools.demo_pair import checkpoint
from tools.demo_pair.export import load_pair
from tools.demo_pair.model import Shape, Target
from tools.demo_pair.plan import Plan

SILENT = ("self_attn.o_proj.weight", "mlp.down_proj.weight")


def grown_shape(folder: Path, layers: int) -> Shape:
    """The shape of a pair's target with ``layers`` layers; features stay behind the same blocks.

    Raises:
        ConfigError: ``layers`` is not a multiple of what the pair has.
    """
    shape = load_pair(folder)[0].shape
    factor, rest = divmod(layers, shape.layers)
    if rest or factor < 2:
        raise ConfigError(
            f"--grow {folder} has {shape.layers} layers, and --layers {layers} is no multiple of "
            "them.",
            todo=f"Say --layers {2 * shape.layers} or {3 * shape.layers}.",
        )
    capture = tuple(k * factor for k in shape.capture)
    return dataclasses.replace(shape, layers=layers, capture=capture)


def grow(old: Target, shape: Shape) -> Target:
    """The deeper target; its logits and captured features are the old one's."""
    factor = shape.layers // old.shape.layers
    new = Target(shape)
    state = new.state_dict()
    for name, value in old.state_dict().items():
        if not name.startswith("layers."):
            state[name] = value
            continue
        _, index, part = name.split(".", 2)
        for copy in range(factor):
            silent = copy > 0 and part in SILENT
            grown = torch.zeros_like(value) if silent else value
            state[f"layers.{int(index) * factor + copy}.{part}"] = grown
    new.load_state_dict(state)
    return new


def stage_grow(plan: Plan) -> None:
    """Write what the stages after pre-training and after the first round of drafting read."""
    if plan.grow is None:
        raise ConfigError("Stage grow needs --grow FOLDER, a pair with target/ and draft/.")
    target, draft, tokens = load_pair(plan.grow)
    checkpoint.save(plan.path("target-base.safetensors"), grow(target, plan.shape).state_dict())
    checkpoint.save(plan.path("draft.safetensors"), {**draft.state_dict(), "tokens": tokens})
    plan.record("grow", {"layers_before": target.shape.layers, "layers": plan.shape.layers})
    plan.log("grow", f"{target.shape.layers} layers became {plan.shape.layers}")

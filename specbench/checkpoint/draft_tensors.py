"""Which tensors a draft must hold, and of what shapes (engine-spec 1.1, 1.5)."""

from __future__ import annotations

from specbench.checkpoint.draft_names import layer_prefix
from specbench.checkpoint.folder import Folder
from specbench.checkpoint.keys import attention_extras, check_tensors, layer_tensors
from specbench.checkpoint.latent import latent_tensors
from specbench.errors import CheckpointError, UnsupportedError
from specbench.modelspec import DraftSpec

MAPS = ("d2t", "t2d")
TIED = "tied to the embedding"
UPPER_NORMS = ("input_layernorm", "hidden_norm")
Shapes = dict[str, tuple[int, ...]]


def check_draft_tensors(folder: Folder, spec: DraftSpec) -> None:
    """Compare the files with what ``spec`` asks for.

    Raises:
        CheckpointError: lists what is missing, unknown and mis-shaped.
    """
    width = spec.feature_width
    found = folder.tensors["fc.weight"].shape if "fc.weight" in folder.tensors else ()
    if len(found) == 2 and found[1] != width:
        raise CheckpointError(
            f"fc.weight in {folder.path} reads {found[1]} values, but {spec.n_features} layers "
            f"{list(spec.capture_physical)} ({spec.capture_source}) of width "
            f"{spec.target_hidden} give {width}.",
            todo="Name as many layers as the draft was trained on.",
        )
    experts = [n for n in folder.tensors if ".mlp.experts." in n or ".mlp.router." in n]
    if experts:
        raise UnsupportedError(
            f"{folder.path} is a draft with a mixture of experts ({experts[0]}).",
            expected="A draft with a dense MLP.",
            todo="Serve it with the engine that it was trained for.",
        )
    floats = {name: entry for name, entry in folder.tensors.items() if name not in MAPS}
    check_tensors(folder.path, floats, required(spec, len(floats)), optional(spec))


def required(spec: DraftSpec, most_layers: int) -> Shapes:
    """Names and shapes that must be there; of absurdly many layers, ``most_layers`` and one."""
    shape = spec.shape
    wanted: Shapes = {
        "midlayer.hidden_norm.weight": (shape.hidden,),
        "norm.weight": (shape.hidden,),
    }
    if spec.has_fc:
        wanted["fc.weight"] = (shape.hidden, spec.feature_width)
    if spec.fc_bias:
        wanted["fc.bias"] = (shape.hidden,)
    for index in range(min(spec.n_layers, most_layers + 1)):
        wanted |= _layer(spec, index)
    if spec.head_policy != TIED:
        wanted["lm_head.weight"] = (spec.draft_vocab, shape.hidden)
    if spec.norm_before_fc:
        wanted["input_norm.weight"] = (spec.feature_width,)
    if spec.fc_norm:
        wanted |= {f"fc_norm.{j}.weight": (spec.target_hidden,) for j in range(spec.n_features)}
    return wanted


def optional(spec: DraftSpec) -> Shapes:
    """Names that may be there: an own embedding, and the norm that an upper layer does not use."""
    hidden = spec.shape.hidden
    may: Shapes = {"embed_tokens.weight": (spec.vocab, hidden)}
    for index in range(1, min(spec.n_layers, 64)):
        may |= {f"{layer_prefix(index)}.{name}.weight": (hidden,) for name in UPPER_NORMS}
    return may


def _layer(spec: DraftSpec, index: int) -> Shapes:
    prefix, shape = layer_prefix(index), spec.shape
    attention_in = shape.hidden * (2 if index == 0 else 1)
    names = layer_tensors(prefix, shape, attention_in)
    if spec.latent is not None:
        names = {n: s for n, s in names.items() if ".self_attn." not in n}
        names |= latent_tensors(index, shape, spec.latent, attention_in)
    else:
        names |= attention_extras(f"{prefix}.self_attn", shape, spec)
    if index > 0 and spec.upper_norm != "input_layernorm":
        names.pop(f"{prefix}.input_layernorm.weight")
        names[f"{prefix}.{spec.upper_norm}.weight"] = (shape.hidden,)
    return names

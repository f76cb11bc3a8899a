"""A draft checkpoint as a DraftSpec: SpecForge and SafeAILab files (engine-spec 1.2, 1.3, 1.10).

Another format is one more ``DraftFormat`` in ``FORMATS``: how to know it, and how to read the ids
of the layers it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.checkpoint.folder import Folder, open_folder
from specbench.checkpoint.keys import (
    Keys,
    check_tensors,
    dtype_name,
    layer_shape,
    layer_tensors,
    rope,
)
from specbench.checkpoint.vocab_map import check_vocab_map
from specbench.errors import CheckpointError
from specbench.modelspec import DraftSpec, LayerShape, TargetSpec

Capture = tuple[tuple[int, ...], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFormat:
    """A way of writing a draft: ``matches`` its folder, ``capture`` reads physical indices."""

    name: str
    matches: Callable[[Folder], bool]
    capture: Callable[[Keys], Capture | None]


def read_draft(
    path: Path | str,
    target: TargetSpec,
    *,
    capture_ids: tuple[int, ...] | None = None,
    capture_default: bool = False,
) -> tuple[DraftSpec, Folder]:
    """Read and check a draft folder against its target; no weights are loaded.

    Args:
        path: folder with config.json and safetensors.
        target: the target it must fit.
        capture_ids: physical indices to capture, when the draft names none or wrong ones.
        capture_default: capture 2, n//2 and n-3 when the draft names none.

    Raises:
        CheckpointError: the draft names no layers and no flag does, or anything does not fit.
    """
    if capture_ids is not None and capture_default:
        raise CheckpointError("--capture-ids and --capture-default are both given.", todo="Drop one.")
    folder = open_folder(path)
    kind = _format(folder)
    keys = Keys(folder.config, folder.path / "config.json")
    physical, source = _capture(keys, kind, target, capture_ids, capture_default)
    return _spec(folder, keys, kind, target, physical, source), folder


def _format(folder: Folder) -> DraftFormat:
    for kind in FORMATS:
        if kind.matches(folder):
            return kind
    if "speculators_model_type" in folder.config:
        found = "a speculators draft (nested config)"
    elif any("q_a_proj" in name for name in folder.tensors):
        found = "a draft with latent attention (q_a_proj)"
    else:
        found = f"tensors such as {sorted(folder.tensors)[:4]}"
    raise CheckpointError(
        f"{folder.path} holds {found}.",
        expected=f"One of the formats {', '.join(kind.name for kind in FORMATS)} (midlayer.* tensors).",
    )


def _specforge_ids(keys: Keys) -> Capture | None:
    """SpecForge writes X for the output of layer X, which is physical X + 1 (engine-spec 3.2)."""
    table = keys.raw("eagle_config")
    where = f"{keys.source}: eagle_config"
    if not isinstance(table, Mapping):
        raise CheckpointError(f"{where}={table!r}.", expected="A table.")
    inner = Keys(table, where)
    inner.must_be("use_aux_hidden_state", True)
    ids = inner.raw("eagle_aux_hidden_state_layer_ids")
    inner.done()
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(i) is int for i in ids) or not ids:
        raise CheckpointError(f"{where}: layer ids {ids!r}.", expected="A list of integers.")
    physical = tuple(sorted(i + 1 for i in ids))
    return physical, f"eagle_config {ids} in config.json, SpecForge's X means physical X + 1"


FORMATS: tuple[DraftFormat, ...] = (
    DraftFormat(
        name="specforge",
        matches=lambda f: "eagle_config" in f.config and "midlayer.input_layernorm.weight" in f.tensors,
        capture=_specforge_ids,
    ),
    DraftFormat(
        name="safeailab",
        matches=lambda f: (
            "midlayer.input_layernorm.weight" in f.tensors
            and "speculators_model_type" not in f.config
        ),
        capture=lambda keys: None,
    ),
)


def _capture(
    keys: Keys,
    kind: DraftFormat,
    target: TargetSpec,
    given: tuple[int, ...] | None,
    use_default: bool,
) -> Capture:
    n, named = target.n_layers, kind.capture(keys)
    if named is not None and use_default:
        raise CheckpointError(
            f"{keys.source} names its layers (physical {list(named[0])}); --capture-default is "
            "for drafts that name none.",
            todo="Drop --capture-default.",
        )
    if given is not None:
        physical, source = tuple(sorted(given)), "--capture-ids"
        said = f"instead of {list(named[0])} ({named[1]})" if named else "the draft names none"
        keys.note("capture_ids", f"physical layers {list(physical)} from --capture-ids; {said}")
    elif named is not None:
        physical, source = named
    elif use_default:
        physical, source = (2, n // 2, n - 3), "--capture-default: 2, n//2, n-3"
        keys.note("capture_default", f"physical layers {list(physical)} from --capture-default")
    else:
        raise CheckpointError(
            f"{keys.source} does not say which target layers the draft was trained on.",
            expected="Layer ids in eagle_config, or a flag.",
            todo="Give --capture-ids (physical indices), or --capture-default for 2, n//2, n-3.",
        )
    outside = [k for k in physical if not 0 <= k <= n]
    if outside or len(set(physical)) != len(physical):
        raise CheckpointError(
            f"capture layers {list(physical)} ({source}) on a target of {n} layers.",
            expected=f"Distinct physical indices in 0..{n}.",
        )
    return physical, source


def _draft_vocab(keys: Keys, vocab: int) -> int:
    if keys.raw("draft_vocab_size") is None:
        keys.note("draft_vocab_default", f"{keys.source}: draft_vocab_size is taken as {vocab}")
        return vocab
    return keys.integer("draft_vocab_size")


def _spec(
    folder: Folder,
    keys: Keys,
    kind: DraftFormat,
    target: TargetSpec,
    physical: tuple[int, ...],
    source: str,
) -> DraftSpec:
    shape, layers, vocab = layer_shape(keys), keys.integer("num_hidden_layers"), keys.integer("vocab_size")
    draft_vocab = _draft_vocab(keys, vocab)
    flags = {
        name: keys.flag(name, default=False)
        for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
    }
    tied = keys.flag("tie_word_embeddings", default=False)
    target_hidden = target.shape.hidden
    if keys.raw("target_hidden_size") is not None:
        target_hidden = keys.integer("target_hidden_size")
    spec_rope = rope(keys)
    keys.raw("target_model_type")
    keys.done()
    for what, mine, theirs in (
        ("num_hidden_layers", layers, 1),
        ("vocab_size", vocab, target.vocab),
        ("target hidden size", target_hidden, target.shape.hidden),
    ):
        if mine != theirs:
            raise CheckpointError(f"{keys.source}: {what} is {mine}.", expected=f"{theirs}.")
    if tied and draft_vocab != vocab:
        raise CheckpointError(
            f"{keys.source}: tie_word_embeddings with draft_vocab_size={draft_vocab} and "
            f"vocab_size={vocab}.",
            expected="Tied embeddings need equal vocabularies.",
        )
    _check_fc(folder, physical, source, target_hidden)
    wanted = _tensors(shape, vocab, draft_vocab, target_hidden, len(physical), flags, tied)
    maps = {name: folder.tensors[name] for name in ("d2t", "t2d") if name in folder.tensors}
    floats = {name: e for name, e in folder.tensors.items() if name not in maps}
    check_tensors(folder.path, floats, wanted, {"embed_tokens.weight": (vocab, shape.hidden)})
    own_embedding = "embed_tokens.weight" in folder.tensors
    if not own_embedding and shape.hidden != target.shape.hidden:
        raise CheckpointError(
            f"{folder.path} has no embedding, and its width {shape.hidden} is not the target's "
            f"{target.shape.hidden}.",
            expected="An own embedding, or equal widths so that the target's can be shared.",
        )
    return DraftSpec(
        file_format=kind.name,
        n_layers=layers,
        vocab=vocab,
        draft_vocab=draft_vocab,
        shape=shape,
        rope=spec_rope,
        target_hidden=target_hidden,
        n_features=len(physical),
        capture_physical=physical,
        capture_source=source,
        embed_policy="own" if own_embedding else "shared: the draft ships none",
        head_policy="tied to the embedding" if tied else "own",
        d2t_policy=check_vocab_map(folder.path, maps, vocab, draft_vocab),
        dtype=dtype_name(folder.tensors, "fc.weight"),
        caveats=tuple(keys.caveats),
        **flags,
    )


def _check_fc(folder: Folder, physical: tuple[int, ...], source: str, target_hidden: int) -> None:
    entry = folder.tensors.get("fc.weight")
    wanted = len(physical) * target_hidden
    if entry is not None and len(entry.shape) == 2 and entry.shape[1] != wanted:
        raise CheckpointError(
            f"fc.weight in {folder.path} reads {entry.shape[1]} values, but {len(physical)} layers "
            f"{list(physical)} ({source}) of width {target_hidden} give {wanted}.",
            todo="Name as many layers as the draft was trained on.",
        )


def _tensors(
    shape: LayerShape,
    vocab: int,
    draft_vocab: int,
    target_hidden: int,
    n_features: int,
    flags: Mapping[str, bool],
    tied: bool,
) -> dict[str, tuple[int, ...]]:
    width = n_features * target_hidden
    wanted: dict[str, Any] = {
        "fc.weight": (shape.hidden, width),
        "midlayer.hidden_norm.weight": (shape.hidden,),
        "norm.weight": (shape.hidden,),
        **layer_tensors("midlayer", shape, 2 * shape.hidden),
    }
    if not tied:
        wanted["lm_head.weight"] = (draft_vocab, shape.hidden)
    if flags["norm_before_fc"]:
        wanted["input_norm.weight"] = (width,)
    if flags["fc_norm"]:
        wanted |= {f"fc_norm.{j}.weight": (target_hidden,) for j in range(n_features)}
    return wanted

"""A draft checkpoint as a DraftSpec: SpecForge and SafeAILab files (engine-spec 1.2, 1.3, 1.10).

Another format is one more ``DraftFormat`` in ``FORMATS``: how to know it, and how to read the ids
of the layers it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.checkpoint.folder import Folder, open_folder
from specbench.checkpoint.headers import TensorEntry
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
from specbench.modelspec import DraftSpec, TargetSpec

Capture = tuple[tuple[int, ...], str]
MAPS = ("d2t", "t2d")
TIED = "tied to the embedding"


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
        raise CheckpointError(
            "--capture-ids and --capture-default are both given.", todo="Drop one."
        )
    folder = open_folder(path)
    kind = _format(folder)
    keys = Keys(folder.config, folder.path / "config.json")
    capture = _capture(keys, kind, target, capture_ids, capture_default)
    spec = _spec(folder, keys, kind, capture)
    _check_target(spec, target, keys.source)
    _check_tensors(folder, spec)
    maps: dict[str, TensorEntry] = {n: folder.tensors[n] for n in MAPS if n in folder.tensors}
    policy = check_vocab_map(folder.path, maps, spec.vocab, spec.draft_vocab)
    return replace(spec, d2t_policy=policy), folder


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
        expected=f"midlayer.* tensors, as in {' or '.join(kind.name for kind in FORMATS)} files.",
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
        matches=lambda f: (
            "eagle_config" in f.config and "midlayer.input_layernorm.weight" in f.tensors
        ),
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


def _spec(folder: Folder, keys: Keys, kind: DraftFormat, capture: Capture) -> DraftSpec:
    """What the config and the tensor names say; nothing is compared yet."""
    physical, source = capture
    shape, vocab = layer_shape(keys), keys.integer("vocab_size")
    draft_vocab = _draft_vocab(keys, vocab)
    tied = keys.flag("tie_word_embeddings", default=False)
    own_embedding = "embed_tokens.weight" in folder.tensors
    has_width = keys.raw("target_hidden_size") is not None
    keys.raw("target_model_type")  # names the target's family; the target itself is at hand
    spec = DraftSpec(
        file_format=kind.name,
        n_layers=keys.integer("num_hidden_layers"),
        vocab=vocab,
        draft_vocab=draft_vocab,
        shape=shape,
        rope=rope(keys),
        target_hidden=keys.integer("target_hidden_size") if has_width else shape.hidden,
        n_features=len(physical),
        capture_physical=physical,
        capture_source=source,
        norm_before_residual=keys.flag("norm_before_residual", default=False),
        norm_before_fc=keys.flag("norm_before_fc", default=False),
        fc_norm=keys.flag("fc_norm", default=False),
        norm_output=keys.flag("norm_output", default=False),
        embed_policy="own" if own_embedding else "shared: the draft ships none",
        head_policy=TIED if tied else "own",
        d2t_policy="",
        dtype=_dtype(folder),
    )
    keys.done()
    return replace(spec, caveats=tuple(keys.caveats))


def _dtype(folder: Folder) -> str:
    if "fc.weight" not in folder.tensors:
        raise CheckpointError(
            f"{folder.path} has no fc.weight.", expected="An EAGLE-3 draft, which has one."
        )
    return dtype_name(folder.tensors, "fc.weight")


def _check_target(spec: DraftSpec, target: TargetSpec, source: str) -> None:
    """What draft and target must agree on."""
    for what, mine, theirs in (
        ("num_hidden_layers", spec.n_layers, 1),
        ("vocab_size", spec.vocab, target.vocab),
        ("target hidden size", spec.target_hidden, target.shape.hidden),
    ):
        if mine != theirs:
            raise CheckpointError(f"{source}: {what} is {mine}.", expected=f"{theirs}.")
    if spec.head_policy == TIED and spec.draft_vocab != spec.vocab:
        raise CheckpointError(
            f"{source}: tie_word_embeddings with draft_vocab_size={spec.draft_vocab} and "
            f"vocab_size={spec.vocab}.",
            expected="Tied embeddings need equal vocabularies.",
        )
    if spec.embed_policy != "own" and spec.shape.hidden != target.shape.hidden:
        raise CheckpointError(
            f"{source}: no embedding of its own, and width {spec.shape.hidden} is not the "
            f"target's {target.shape.hidden}.",
            expected="An own embedding, or equal widths so that the target's can be shared.",
        )


def _check_tensors(folder: Folder, spec: DraftSpec) -> None:
    shape, width = spec.shape, spec.feature_width
    found = folder.tensors["fc.weight"].shape
    if len(found) == 2 and found[1] != width:
        raise CheckpointError(
            f"fc.weight in {folder.path} reads {found[1]} values, but {spec.n_features} layers "
            f"{list(spec.capture_physical)} ({spec.capture_source}) of width "
            f"{spec.target_hidden} give {width}.",
            todo="Name as many layers as the draft was trained on.",
        )
    wanted: dict[str, tuple[int, ...]] = {
        "fc.weight": (shape.hidden, width),
        "midlayer.hidden_norm.weight": (shape.hidden,),
        "norm.weight": (shape.hidden,),
        **layer_tensors("midlayer", shape, 2 * shape.hidden),
    }
    if spec.head_policy != TIED:
        wanted["lm_head.weight"] = (spec.draft_vocab, shape.hidden)
    if spec.norm_before_fc:
        wanted["input_norm.weight"] = (width,)
    if spec.fc_norm:
        wanted |= {f"fc_norm.{j}.weight": (spec.target_hidden,) for j in range(spec.n_features)}
    floats = {name: entry for name, entry in folder.tensors.items() if name not in MAPS}
    own = {"embed_tokens.weight": (spec.vocab, shape.hidden)}
    check_tensors(folder.path, floats, wanted, own)

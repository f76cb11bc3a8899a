"""A draft checkpoint of any known format as one DraftSpec (engine-spec 1, table 1.10)."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from specbench.checkpoint.capture import choose_capture
from specbench.checkpoint.draft_layer import read_layer
from specbench.checkpoint.draft_names import layer_prefix, with_canonical_names
from specbench.checkpoint.draft_tensors import MAPS, TIED, UPPER_NORMS, check_draft_tensors
from specbench.checkpoint.folder import Folder, open_folder
from specbench.checkpoint.formats import Captured, ConfigTables, find_format
from specbench.checkpoint.keys import FLOATS, Keys, dtype_name
from specbench.checkpoint.vocab_map import DIRECT, check_vocab_map
from specbench.errors import CheckpointError, UnsupportedError
from specbench.estimate import Caveat, Severity
from specbench.modelspec import DraftSpec, TargetSpec


def read_draft(
    path: Path | str,
    target: TargetSpec,
    *,
    capture_ids: tuple[int, ...] | None = None,
    capture_default: bool = False,
    d2t: str = "offsets",
) -> tuple[DraftSpec, Folder]:
    """Read and check a draft folder against its target; no weights are loaded.

    Args:
        path: folder with config.json and safetensors.
        target: the target it must fit.
        capture_ids: physical indices to capture, when the draft names none or wrong ones.
        capture_default: capture 2, n//2 and n-3 when the draft names none.
        d2t: ``offsets``, or ``direct`` to accept a map that holds target ids.

    Returns:
        The spec, and the folder with its tensors under canonical names (``draft_names``).

    Raises:
        CheckpointError: the draft names no layers and no flag does, or anything does not fit.
    """
    if capture_ids is not None and capture_default:
        raise CheckpointError(
            "--capture-ids and --capture-default are both given.", todo="Drop one."
        )
    folder = with_canonical_names(open_folder(path))
    kind = find_format(folder)
    tables = kind.open_keys(folder)
    capture = choose_capture(tables.draft, kind, target.n_layers, capture_ids, capture_default)
    spec = _spec(folder, tables, kind.name, capture)
    _check_target(spec, target, tables.layer.source)
    check_draft_tensors(folder, spec)
    maps = {name: folder.tensors[name] for name in MAPS if name in folder.tensors}
    policy = check_vocab_map(folder.path, maps, spec.vocab, spec.draft_vocab, d2t)
    caveats = spec.caveats + ((_direct_map(folder),) if policy == DIRECT else ())
    return replace(spec, d2t_policy=policy, caveats=caveats), folder


def _direct_map(folder: Folder) -> Caveat:
    return Caveat(
        code="d2t_direct",
        severity=Severity.NOTE,
        text=f"{folder.path}: d2t is read as target ids, from --d2t direct; engines read it as "
        "offsets, so a served draft needs specbench convert",
    )


def _spec(folder: Folder, tables: ConfigTables, name: str, capture: Captured) -> DraftSpec:
    """What the config and the tensor names say; nothing is compared yet."""
    draft, layer = tables.draft, tables.layer
    parts = read_layer(layer, folder, nested=layer is not draft)
    vocab, n_layers = layer.integer("vocab_size"), layer.integer("num_hidden_layers")
    draft_vocab = _draft_vocab(draft, vocab)
    tied = draft.flag("tie_word_embeddings", default=False)
    if layer is not draft:
        layer.raw("tie_word_embeddings")  # a default of the layer's class; the draft has its own
    has_width = draft.raw("target_hidden_size") is not None
    draft.raw("target_model_type")  # names the target's family; the target itself is at hand
    spec = DraftSpec(
        file_format=name,
        n_layers=n_layers,
        vocab=vocab,
        draft_vocab=draft_vocab,
        **{field.name: getattr(parts, field.name) for field in fields(parts)},
        target_hidden=draft.integer("target_hidden_size") if has_width else parts.shape.hidden,
        n_features=len(capture.physical),
        capture_physical=capture.physical,
        capture_source=capture.source,
        last_hidden=capture.last_hidden,
        has_fc=not capture.last_hidden or "fc.weight" in folder.tensors,
        fc_bias=_fc_bias(folder, draft),
        norm_before_residual=draft.flag("norm_before_residual", default=False),
        norm_before_fc=draft.flag("norm_before_fc", default=False),
        fc_norm=draft.flag("fc_norm", default=False),
        norm_output=draft.flag("norm_output", default=False),
        upper_norm=_upper_norm(folder, draft, n_layers),
        embed_policy=(
            "own" if "embed_tokens.weight" in folder.tensors else "shared: the draft ships none"
        ),
        head_policy=TIED if tied else "own",
        d2t_policy="",
        dtype=_dtype(folder, capture),
    )
    tables.done()
    _note_norm_output(spec, draft)
    caveats = draft.caveats + (layer.caveats if layer is not draft else [])
    return replace(spec, caveats=tuple(caveats))


def _draft_vocab(keys: Keys, vocab: int) -> int:
    """Vd; vLLM's configs for EAGLE call it truncated_vocab_size, some files hold both."""
    other = keys.raw("truncated_vocab_size")
    if keys.raw("draft_vocab_size") is None and other is not None:
        return keys.integer("truncated_vocab_size")
    if other is not None:
        keys.must_be("truncated_vocab_size", keys.integer("draft_vocab_size"))
    if keys.raw("draft_vocab_size") is None:
        keys.note("draft_vocab_default", f"{keys.source}: draft_vocab_size is taken as {vocab}")
        return vocab
    return keys.integer("draft_vocab_size")


def _fc_bias(folder: Folder, keys: Keys) -> bool:
    """Whether fc adds a bias: what the file holds, since SGLang alone reads the key ``bias``."""
    held = "fc.bias" in folder.tensors
    if keys.flag("bias", default=False) and not held:
        keys.warn(
            "fc_bias",
            f"{keys.source}: bias is true and the file holds no fc.bias; none is added here, while "
            "SGLang makes one and leaves it unset",
        )
    return held


def _upper_norm(folder: Folder, keys: Keys, n_layers: int) -> str:
    """The norm in front of layers 1 and up: engines differ when a file holds both (1.6)."""
    if n_layers == 1:
        return UPPER_NORMS[0]
    held = [n for n in UPPER_NORMS if f"{layer_prefix(1)}.{n}.weight" in folder.tensors]
    if len(held) == 2:
        keys.warn(
            "upper_norm",
            f"{folder.path}: layer 1 holds input_layernorm, used here and by vLLM, and "
            "hidden_norm, used by SGLang: the two engines run this draft differently",
        )
    return held[0] if held else UPPER_NORMS[0]


def _note_norm_output(spec: DraftSpec, keys: Keys) -> None:
    if spec.norm_output and spec.file_format == "specforge":
        keys.warn(
            "norm_output_ambiguous",
            f"{keys.source}: norm_output is read as engines do (the normed state is fed back); "
            "SpecForge before #879 exported it with another meaning. When acceptance falls after "
            "the first position, set it to false",
        )


def _dtype(folder: Folder, capture: Captured) -> str:
    name = "midlayer.self_attn.o_proj.weight" if capture.last_hidden else "fc.weight"
    if name not in folder.tensors:
        raise CheckpointError(
            f"{folder.path} has no {name}.", expected="An EAGLE-3 draft, which has one."
        )
    if folder.tensors[name].dtype not in FLOATS:
        raise UnsupportedError(
            f"{name} in {folder.path} is {folder.tensors[name].dtype}: a quantised draft.",
            expected="F64, F32, F16 or BF16 weights.",
            todo="Point to the checkpoint that it was quantised from.",
        )
    return dtype_name(folder.tensors, name)


def _check_target(spec: DraftSpec, target: TargetSpec, source: str) -> None:
    """What draft and target must agree on."""
    for what, mine, theirs in (
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
    if not spec.has_fc and spec.target_hidden != spec.shape.hidden:
        raise CheckpointError(
            f"{source}: no fc.weight, and the target's width {spec.target_hidden} is not "
            f"{spec.shape.hidden}.",
            expected="fc.weight, or equal widths.",
        )

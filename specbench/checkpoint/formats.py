"""How each code base writes a draft: how to know its files, and where it says what (1.10).

A format is one ``DraftFormat`` in ``FORMATS``. ``open_keys`` finds its config tables; ``capture``
reads which target layers the draft was trained on, as physical indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specbench.checkpoint.conventions import find, to_physical
from specbench.checkpoint.folder import Folder
from specbench.checkpoint.keys import Keys, shown
from specbench.errors import CheckpointError, ConfigError

MAX_FEATURES = 64
IDS = "eagle_aux_hidden_state_layer_ids"
MODELOPT_KEYS = ("use_input_layernorm_in_first_layer", "use_last_layernorm", "use_mtp_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a file says of its features: physical layers, or the last normed state, and where."""

    physical: tuple[int, ...] = ()
    source: str = ""
    last_hidden: bool = False

    @property
    def named(self) -> bool:
        """Whether the file says it at all."""
        return self.last_hidden or bool(self.physical)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTables:
    """The two tables of a config: ``draft`` says what is EAGLE's, ``layer`` what is Llama's.

    They are one and the same where the format is flat.
    """

    draft: Keys
    layer: Keys

    def done(self) -> None:
        """Raise for keys that nobody read."""
        self.draft.done()
        if self.layer is not self.draft:
            self.layer.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFormat:
    """A way of writing a draft."""

    name: str
    matches: Callable[[Folder], bool]
    open_keys: Callable[[Folder], ConfigTables]
    capture: Callable[[Keys, int], Captured]


def find_format(folder: Folder) -> DraftFormat:
    """The format of a draft folder.

    Raises:
        CheckpointError: it is no EAGLE-3 draft: what it looks like instead.
    """
    if "midlayer.input_layernorm.weight" in folder.tensors:
        return next(kind for kind in FORMATS if kind.matches(folder))
    if any(name.startswith("model.layers.") for name in folder.tensors):
        found = "a whole model (model.layers.*), such as a target"
    elif "speculators_model_type" in folder.config:
        found = "a speculators config without the tensors of a first layer"
    else:
        found = f"tensors such as {sorted(folder.tensors)[:4]}"
    raise CheckpointError(
        f"{folder.path} holds {found}.",
        expected="An EAGLE-3 draft: midlayer.* or layers.0.* tensors, as in "
        f"{', '.join(kind.name for kind in FORMATS)} files.",
    )


def _flat(folder: Folder) -> ConfigTables:
    keys = Keys(folder.config, folder.path / "config.json")
    return ConfigTables(draft=keys, layer=keys)


def _nested(folder: Folder) -> ConfigTables:
    """speculators: everything of Llama's in transformer_layer_config."""
    source = folder.path / "config.json"
    keys = Keys(folder.config, source)
    keys.must_be("speculators_model_type", "eagle3")
    for name in ("speculators_config", "speculators_version", "embed_requires_grad"):
        keys.raw(name)  # how it was trained and is to be served; says nothing of the forward
    table = keys.raw("transformer_layer_config")
    if not isinstance(table, Mapping):
        raise CheckpointError(
            f"{source}: transformer_layer_config={shown(table)}.", expected="A table."
        )
    if not isinstance(keys.raw("norm_before_residual"), bool):
        raise CheckpointError(
            f"{source}: norm_before_residual is absent.",
            expected="true or false: speculators' config class takes false, its training true, "
            "and vLLM true.",
            todo="Write into config.json what it was trained with.",
        )
    return ConfigTables(draft=keys, layer=Keys(table, f"{source}: transformer_layer_config"))


def _inner(keys: Keys) -> Keys:
    table, where = keys.raw("eagle_config"), f"{keys.source}: eagle_config"
    if not isinstance(table, Mapping):
        raise CheckpointError(f"{where}={shown(table)}.", expected="A table.")
    return Keys(table, where)


def _nested_ids(keys: Keys, layers: int, code: str) -> Captured:
    """eagle_config: X is the output of layer X, physical X + 1 (engine-spec 3.2)."""
    inner = _inner(keys)
    uses_layers = inner.flag("use_aux_hidden_state", default=True)
    for name, value in zip(MODELOPT_KEYS, (True, True, False), strict=True):
        inner.must_be(name, value)
    inner.must_be("next_layer_regular", True)
    inner.must_be("parallel_draft_step", 1, None)
    inner.raw("parallel_draft_heads_num_layers")
    ids = inner.raw(IDS)
    inner.done()
    if ids is not None:
        _id_list(ids, inner.source)
    keys.must_be("num_eagle_features", None, len(ids or ()) if uses_layers else 1)
    if not uses_layers:
        if ids:
            keys.note("ids_unused", f"{inner.source} lists {shown(ids)}, which it does not use")
        return Captured(
            last_hidden=True,
            source=f"{inner.source}: use_aux_hidden_state is false, so the last normed state",
        )
    top = _vllm_ids(keys, layers)
    if not ids:
        return top
    physical = to_physical(ids, find(code), layers)
    told = f"{inner.source}.{IDS} {ids}, {code}'s X means physical X + 1"
    if top.named and top.physical != physical:
        raise CheckpointError(
            f"{keys.source} names two sets of layers: physical {list(physical)} ({told}), and "
            f"{list(top.physical)} ({top.source}).",
            todo="Keep the right one, or give --capture-ids.",
        )
    return Captured(physical=physical, source=told)


def _vllm_ids(keys: Keys, layers: int) -> Captured:
    """A key at the top of a flat config is read by vLLM alone, where X is physical X."""
    ids = keys.raw(IDS)
    if ids is None or ids == []:
        return Captured()
    where = f"{keys.source}: {IDS}"
    physical = to_physical(_id_list(ids, where), find("vllm==0.32"), layers)
    return Captured(physical=physical, source=f"{where} {ids}: X means physical X in vLLM")


def _top_ids(keys: Keys, layers: int) -> Captured:
    """speculators: the meaning of X changed between 0.3 and 0.5 (engine-spec 3.2)."""
    ids = keys.raw(IDS)
    if ids is None or ids == []:
        return Captured()
    where = f"{keys.source}: {IDS}"
    wanted, version = _id_list(ids, where), keys.raw("speculators_version")
    try:
        rule = find(f"speculators=={version}" if isinstance(version, str) else "speculators")
    except ConfigError as error:
        readings = " or ".join(
            f"{list(_reading(wanted, name, layers))} ({name})"
            for name in ("speculators==0.3", "speculators==0.5")
        )
        raise CheckpointError(
            f"{where} {ids} mean physical {readings}, and speculators_version is {shown(version)}.",
            expected="The version that trained it, 0.3 or older or 0.5 or newer.",
            todo="Give --capture-ids (physical indices), or write speculators_version.",
        ) from error
    physical = to_physical(wanted, rule, layers)
    told = f"speculators {version}: {rule.shift.value}"
    return Captured(physical=physical, source=f"{where} {ids}: {told}")


def _reading(ids: list[int], name: str, layers: int) -> tuple[int, ...]:
    return to_physical(ids, find(name), layers)


def _id_list(ids: Any, where: str) -> list[int]:
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise CheckpointError(f"{where}: layer ids {shown(ids)}.", expected="A list of integers.")
    if len(ids) > MAX_FEATURES or any(abs(i) > 2**40 for i in ids):
        raise CheckpointError(
            f"{where}: {len(ids)} layer ids such as {shown(ids)}.",
            expected=f"At most {MAX_FEATURES} layers of the target.",
        )
    return ids


def _has_modelopt_keys(folder: Folder) -> bool:
    table = folder.config.get("eagle_config")
    return isinstance(table, Mapping) and any(name in table for name in MODELOPT_KEYS)


# The first that fits; the last fits every EAGLE-3 draft.
FORMATS: tuple[DraftFormat, ...] = (
    DraftFormat(
        name="speculators",
        matches=lambda f: "speculators_model_type" in f.config,
        open_keys=_nested,
        capture=_top_ids,
    ),
    DraftFormat(
        name="nvidia",
        matches=_has_modelopt_keys,
        open_keys=_flat,
        capture=lambda keys, n: _nested_ids(keys, n, "nvidia"),
    ),
    DraftFormat(
        name="specforge",
        matches=lambda f: "eagle_config" in f.config,
        open_keys=_flat,
        capture=lambda keys, n: _nested_ids(keys, n, "specforge"),
    ),
    DraftFormat(
        name="safeailab",
        matches=lambda f: True,
        open_keys=_flat,
        capture=_vllm_ids,
    ),
)

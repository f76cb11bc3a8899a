"""Edits of a copied checkpoint that each make one fault: config.json, tensors, tokenizer.

Every edit takes the folder of a copy and changes it in place; it works on the shipped pair's kind
of files (one safetensors file, SpecForge's config for the draft).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from specbench import demo
from specbench.checkpoint.formats import IDS
from specbench.doctor.zoo import Edit

Tensors = dict[str, np.ndarray]
QKV = tuple(f"midlayer.self_attn.{n}_proj.weight" for n in "qkv")
WEIGHTS = "model.safetensors"
QUANTISED_BITS = 4
GROUP = 32


def config(change: Callable[[dict[str, Any]], object], name: str = "config.json") -> Edit:
    """An edit of a JSON file."""

    def edit(folder: Path) -> None:
        path = folder / name
        table = json.loads(path.read_text(encoding="utf-8"))
        change(table)
        path.write_text(json.dumps(table, indent=2), encoding="utf-8")

    return edit


def values(**keys: Any) -> Edit:
    """Config keys set."""
    return config(lambda table: table.update(keys))


def values_of(name: str, **keys: Any) -> Edit:
    """Keys of another JSON file set."""
    return config(lambda table: table.update(keys), name)


def doubled_bos(folder: Path) -> None:
    """A chat template that writes the start token twice."""

    def change(table: dict[str, Any]) -> None:
        table["chat_template"] = "{{ bos_token }}" + table["chat_template"]

    config(change, "tokenizer_config.json")(folder)


def own_template(folder: Path) -> None:
    """The draft's folder holds the settings of the tokenizer that it was trained with."""
    shutil.copyfile(demo.TARGET / "tokenizer_config.json", folder / "tokenizer_config.json")


def ids(layers: list[int] | None) -> Edit:
    """The draft's layer ids as written; None leaves them out."""

    def change(table: dict[str, Any]) -> None:
        if layers is None:
            del table["eagle_config"][IDS]
        else:
            table["eagle_config"][IDS] = layers

    return config(change)


def misplaced(table: dict[str, Any]) -> None:
    """The ids under a key that no engine reads."""
    table["eagle_config"]["layer_ids"] = table["eagle_config"].pop(IDS)


def tensors(change: Callable[[Tensors], object]) -> Edit:
    """An edit of the weights."""

    def edit(folder: Path) -> None:
        path = folder / WEIGHTS
        table = load_file(path)
        change(table)
        save_file({name: np.ascontiguousarray(v) for name, v in table.items()}, path)

    return edit


def both(*edits: Edit) -> Edit:
    """Edits one after another."""

    def edit(folder: Path) -> None:
        for one in edits:
            one(folder)

    return edit


def direct_map(table: Tensors) -> None:
    """d2t holds target ids where offsets belong."""
    table["d2t"] = table["d2t"] + np.arange(len(table["d2t"]), dtype=table["d2t"].dtype)


def zero_map(table: Tensors) -> None:
    """d2t is all zeros, t2d as it was."""
    table["d2t"] = np.zeros_like(table["d2t"])


def reversed_fc(table: Tensors) -> None:
    """The draft was trained with the chunks of fc's input in the opposite order."""
    table["fc.weight"] = np.concatenate(np.split(table["fc.weight"], 3, axis=1)[::-1], axis=1)


def eagle_head(table: Tensors) -> None:
    """Projections that read H values, as EAGLE-1 and 2 have them."""
    for name in QKV:
        table[name] = table[name][:, table[name].shape[1] // 2 :]


def scrambled_embedding(folder: Path) -> None:
    """The draft ships an embedding whose rows are another vocabulary's."""
    table = load_file(folder.parent / "target" / WEIGHTS)["model.embed_tokens.weight"]
    order = np.random.default_rng(0).permutation(len(table))
    tensors(lambda t: t.update({"embed_tokens.weight": table[order]}))(folder)


def own_embedding(folder: Path) -> None:
    """A sound draft with a trained embedding of its own: columns of the target's with other signs,
    and projections that undo it. Only with its own embedding does it compute what it did."""
    table = load_file(folder.parent / "target" / WEIGHTS)["model.embed_tokens.weight"]
    signs = np.where(np.random.default_rng(0).random(table.shape[1]) < 0.5, -1, 1)
    signs = signs.astype(table.dtype)

    def change(t: Tensors) -> None:
        t["embed_tokens.weight"] = table * signs
        for name in QKV:
            half = len(signs)
            t[name] = np.concatenate([t[name][:, :half] * signs, t[name][:, half:]], axis=1)

    tensors(change)(folder)


def rounded(keep: Callable[[str], bool]) -> Edit:
    """Weights quantised to 4 bits in groups of 32 and cast back, as some exports do."""

    def change(table: Tensors) -> None:
        for name, value in table.items():
            if value.ndim == 2 and keep(name):
                table[name] = _quantised(value)

    return tensors(change)


def _quantised(value: np.ndarray) -> np.ndarray:
    groups = value.astype(np.float32).reshape(-1, GROUP)
    most = 2 ** (QUANTISED_BITS - 1) - 1
    step = np.maximum(np.abs(groups).max(1, keepdims=True) / most, 1e-12)
    whole: np.ndarray = (np.round(groups / step) * step).reshape(value.shape)
    return whole.astype(value.dtype)


def without_tokens(keep_share: float) -> Edit:
    """A draft vocabulary from another domain: of its tokens only the rarest are left.

    Rows of the head are in the order of target ids, which a byte-pair tokenizer gives by how often
    a pair was merged, so the first rows are the common tokens.
    """

    def edit(folder: Path) -> None:
        kept: list[int] = []

        def change(t: Tensors) -> None:
            size = len(t["d2t"])
            target = np.arange(size) + t["d2t"]
            first = round(size * (1 - keep_share))
            rows = np.concatenate([np.arange(8), np.arange(first, size)])
            t["lm_head.weight"] = t["lm_head.weight"][rows]
            t["d2t"] = (target[rows] - np.arange(len(rows))).astype(t["d2t"].dtype)
            if "t2d" in t:
                mask = np.zeros(len(t["t2d"]), dtype=bool)
                mask[target[rows]] = True
                t["t2d"] = mask.astype(t["t2d"].dtype)
            kept.append(len(rows))

        tensors(change)(folder)
        values(draft_vocab_size=kept[0])(folder)

    return edit


def other_tokenizer(folder: Path) -> None:
    """The draft's folder holds a tokenizer in which two hundred tokens changed places."""
    path = folder.parent / "target" / "tokenizer.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    vocab: Mapping[str, int] = table["model"]["vocab"]
    names = sorted(vocab, key=lambda name: vocab[name])[-200:]
    moved = {name: vocab[other] for name, other in zip(names, reversed(names), strict=True)}
    table["model"]["vocab"] = {**vocab, **moved}
    (folder / "tokenizer.json").write_text(json.dumps(table), encoding="utf-8")

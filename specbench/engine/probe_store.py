"""A folder of dumped features: the index, and what a shard holds in each layout.

``features.json`` says what was dumped and lists the shards that are whole; it is replaced at once
after every shard, so that a dump that was killed goes on behind the last of them. Layouts:

- ``specbench``: several texts a shard; of text number i ``i.input_ids`` and ``i.loss_mask`` [S],
  ``i.hidden.k`` [S, Ht] for physical index k (the stream before any norm),
  ``i.last_pre_norm`` and ``i.last_post_norm`` [S, Ht].
- ``speculators`` and ``specforge``: a text a file, as ``probe_files`` reads them; the last state is
  un-normed in the first, normed in the second, as their own tools have it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from specbench.checkpoint.folder import MAX_INDEX_BYTES, read_json
from specbench.config import load_strict
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_files import RawText, checked, ids_of, load, mask_of, read_feature_file
from specbench.engine.probe_text import Sample
from specbench.engine.wiring import Tap
from specbench.errors import CheckpointError, ConfigError, WorkloadError
from specbench.journal import write_atomically

INDEX = "features.json"
FORMAT, VERSION = "specbench features", 1


class Layout(enum.StrEnum):
    """Whose files a dump looks like."""

    SPECBENCH = "specbench"
    SPECULATORS = "speculators"
    SPECFORGE = "specforge"

    @property
    def streams_beside(self) -> int:
        """Streams of a text beside the layers: the last states that are written."""
        return 2 if self is Layout.SPECBENCH else 1

    def file_name(self, number: int) -> str:
        """Of shard or text number ``number``."""
        stem = {Layout.SPECBENCH: "features", Layout.SPECULATORS: "hs", Layout.SPECFORGE: "data"}
        digits = f"{number:05d}" if self is Layout.SPECBENCH else str(number)
        separator = "-" if self is Layout.SPECBENCH else "_"
        return f"{stem[self]}{separator}{digits}.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """Where a text lies: its number, its shard's name, and the sample without its tokens."""

    number: int
    file: str
    request_id: str
    category: str
    prompt_len: int
    output_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What ``features.json`` says.

    ``layers`` are physical indices, ascending. ``past`` tokens follow the cut of each reply.
    ``inputs`` are hashes of the target's files, ``prompts`` a hash of all prompts and lengths.
    """

    layout: Layout
    layers: tuple[int, ...]
    n_layers: int
    hidden: int
    vocab: int
    dtype: str
    past: int
    shard_bytes: int
    inputs: Mapping[str, str]
    prompts: str
    texts: int
    shards: Mapping[str, int] = dataclasses.field(default_factory=dict)
    stored: tuple[StoredText, ...] = ()

    @property
    def complete(self) -> bool:
        """Every text is there."""
        return len(self.stored) == self.texts

    def differs(self, other: Index) -> list[str]:
        """What two dumps were asked differently, by name with both values."""
        names = [f.name for f in dataclasses.fields(self) if f.name not in ("shards", "stored")]
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f"{name} {one} and {two}" for name, one, two in pairs if one != two]

    def write(self, folder: Path) -> None:
        """Replace the index at once.

        Raises:
            OutputError: it cannot be written.
        """
        table = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        write_atomically(folder / INDEX, json.dumps(table, indent=1) + "\n")


def read_index(folder: Path) -> Index:
    """The index of a dumped folder, every shard checked to be there whole.

    Raises:
        WorkloadError: it is of another version, is not well formed, or a shard is not as listed.
    """
    table = read_json(folder / INDEX, MAX_INDEX_BYTES)
    if (table.pop("format", None), table.pop("version", None)) != (FORMAT, VERSION):
        raise WorkloadError(
            f"{folder / INDEX} is no index of this version.", expected=f"{FORMAT} {VERSION}."
        )
    try:
        index = _index(table)
    except (TypeError, ValueError, AttributeError, KeyError, ConfigError) as error:
        raise WorkloadError(f"{folder / INDEX} is not well formed: {error}") from error
    for name, size in index.shards.items():
        path = folder / name
        found = path.stat().st_size if Path(name).name == name and path.is_file() else None
        if found != size:
            raise WorkloadError(
                f"{path} has {found} bytes, the index says {size}.", todo="Dump the features again."
            )
    return index


def _index(table: dict[str, Any]) -> Index:
    index = load_strict(Index, table, source=INDEX)
    texts, shape = index.stored, (index.hidden, index.vocab, index.n_layers)
    if min(shape) < 1 or index.past < 0 or not index.layers:
        raise ValueError("a size of it is none.")
    if not all(0 <= k <= index.n_layers for k in index.layers):
        raise ValueError(f"layers {list(index.layers)} lie outside 0..{index.n_layers}.")
    if lost := sorted({text.file for text in texts} - set(index.shards)):
        raise ValueError(f"shards lacks {lost[0]}, where a text lies.")
    if [text.number for text in texts] != list(range(len(texts))) or len(texts) > index.texts:
        raise ValueError("its texts are not numbered 0, 1, 2 and on.")
    if any(text.prompt_len < 1 or text.output_len < 1 for text in texts):
        raise ValueError("a text has no prompt or no reply.")
    return index


def shard_tensors(
    layout: Layout, number: int, layers: tuple[int, ...], captured: Capture, text: int
) -> dict[str, Tensor]:
    """What a layout stores of text ``text`` of ``captured``, as text number ``number``."""
    first, end = captured.spans()[text]
    sample, tokens = captured.samples[text], captured.tokens[first:end]
    place = torch.arange(end - first, device=tokens.device)
    in_reply = (place >= sample.prompt_len) & (place < sample.prompt_len + sample.output_len)
    streams = {k: captured.features[Tap.RESIDUAL, k][first:end] for k in layers}
    last = captured.features[Tap.RESIDUAL, max(k for _, k in captured.features)][first:end]
    normed = captured.normed[first:end]
    if layout is Layout.SPECULATORS:
        states = torch.stack([*streams.values(), last], 1)
        found = {"token_ids": tokens, "loss_mask": in_reply.long(), "hidden_states": states}
    elif layout is Layout.SPECFORGE:
        joined = torch.cat(list(streams.values()), -1)
        found = {
            "input_ids": tokens[None],
            "loss_mask": in_reply.long()[None],
            "hidden_state": normed[None],
            "aux_hidden_state": joined[None],
        }
    else:
        named = {"input_ids": tokens, "loss_mask": in_reply}
        named |= {f"hidden.{k}": stream for k, stream in streams.items()}
        named |= {"last_pre_norm": last, "last_post_norm": normed}
        found = {f"{number}.{name}": value for name, value in named.items()}
    return {name: value.cpu().contiguous().clone() for name, value in found.items()}


def check_target(folder: Path, index: Index, inputs: Mapping[str, str]) -> None:
    """Nothing, when the target's files are those that were dumped; ``inputs`` are their hashes.

    Raises:
        WorkloadError: names the files that differ.
    """
    changed = [name for name, digest in index.inputs.items() if inputs.get(name) != digest]
    if changed or not index.inputs:
        raise WorkloadError(
            f"{folder} was dumped from another target: {', '.join(sorted(changed)) or 'no file'}.",
            expected="The same files of the target.",
            todo="Give the target that was dumped, or dump the features again.",
        )


def read_stored(
    folder: Path, index: Index, text: StoredText, wanted: tuple[int, ...]
) -> tuple[RawText, Sample]:
    """A dumped text with the streams of the physical indices ``wanted``.

    Raises:
        WorkloadError: an index was not dumped (both lists are named), or the shard is not as the
            index says.
    """
    missing = [k for k in wanted if k not in index.layers]
    if missing:
        raise WorkloadError(
            f"{folder} holds physical layers {list(index.layers)}, the draft takes {list(wanted)}.",
            todo=f"Dump the features again with --layers {','.join(map(str, wanted))}.",
        )
    try:
        raw = _raw(folder / text.file, index, text, wanted)
    except (CheckpointError, OSError, KeyError, SafetensorError) as error:
        raise WorkloadError(f"{folder / text.file} cannot be read: {error}.") from error
    if text.prompt_len + text.output_len > len(raw.tokens):
        raise WorkloadError(
            f"{folder / INDEX}: text {text.number} has {text.prompt_len} prompt and "
            f"{text.output_len} reply tokens, its shard {len(raw.tokens)} in all.",
            todo="Dump the features again.",
        )
    sample = Sample(
        request_id=text.request_id,
        category=text.category,
        tokens=raw.tokens,
        prompt_len=text.prompt_len,
        output_len=text.output_len,
    )
    return raw, sample


def _raw(path: Path, index: Index, text: StoredText, wanted: tuple[int, ...]) -> RawText:
    if index.layout is not Layout.SPECBENCH:
        raw = read_feature_file(path, index.hidden)
        streams = tuple(raw.streams[index.layers.index(k)] for k in wanted)
        normed = index.layout is Layout.SPECFORGE
        return dataclasses.replace(raw, streams=streams, layers=wanted, normed=normed)
    at = f"{text.number}."
    names = [f"{at}{n}" for n in ("input_ids", "loss_mask", "last_pre_norm")]
    tensors = load(path, [*names, *(f"{at}hidden.{k}" for k in wanted)])
    ids, mask, last = (tensors[name] for name in names)
    return checked(
        RawText(
            where=f"{path.name}, text {text.number}",
            tokens=ids_of(path.name, names[0], ids),
            mask=mask_of(path.name, names[1], mask),
            streams=tuple(tensors[f"{at}hidden.{k}"] for k in wanted),
            layers=wanted,
            last=last,
            normed=False,
        )
    )

"""Dump the target's hidden states over its own greedy replies, shard by shard (engine-spec 11.6).

What is written is planned from the longest that each text can become: which texts share a shard
does not depend on how far an earlier dump came, so a dump that was killed goes on with the next
shard and ends with the same files.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import MOST_ROWS, capture
from specbench.engine.probe_store import (
    INDEX,
    Index,
    Layout,
    StoredText,
    read_index,
    shard_tensors,
)
from specbench.engine.probe_text import greedy_texts
from specbench.errors import ConfigError, OutputError, WorkloadError
from specbench.journal import TEMPORARY, replacing
from specbench.request import Request

BESIDE_ROWS = 16 * 1024  # header of a shard and the index, at most, by text
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What to write where: ``layers`` ascending physical indices, ``past`` tokens beyond a cut."""

    folder: Path
    layers: tuple[int, ...]
    past: int
    layout: Layout = Layout.SPECBENCH
    shard_bytes: int = 256 * 1024**2
    resume: bool = False


def dump(
    pair: ModelPair, requests: Sequence[Request], asked: Dump, progress: Progress | None = None
) -> Index:
    """Let the target answer ``requests`` greedily and store what it felt.

    Args:
        pair: the loaded target; a draft is not used.
        requests: prompts; their sampling gives the length.
        asked: where and what.
        progress: called with the texts that are stored, and all, after every shard.

    Raises:
        ConfigError: no such layer, or a text alone is larger than a shard.
        OutputError: the folder holds something, another dump was begun there, or the disk has no
            room for what is missing.
        RequestError: a prompt does not fit the target.
    """
    plan = _Plan.of(pair, requests, asked)
    index = _begun(asked, plan.index)
    left = [group for group in plan.groups if group[0] >= len(index.stored)]
    _check_room(asked.folder, sum(plan.bytes_of(at) for group in left for at in group))
    for group in left:
        index = _write(pair, requests, group, asked.folder, index)
        index.write(asked.folder)
        if progress is not None:
            progress(len(index.stored), index.texts)
    return index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Most rows of every text, the bytes of a row, and which texts share a shard."""

    index: Index
    rows: tuple[int, ...]
    row_bytes: int
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, pair: ModelPair, requests: Sequence[Request], asked: Dump) -> _Plan:
        spec, layers = pair.target_spec, asked.layers
        if not layers or list(layers) != sorted({k for k in layers if 0 <= k <= spec.n_layers}):
            raise ConfigError(
                f"layers {list(layers)}.",
                expected=f"Different physical indices in 0..{spec.n_layers}, ascending.",
            )
        if not requests:
            raise WorkloadError("there is no text to dump.", expected="At least one request.")
        prompts = [pair.codec.prompt_ids(request) for request in requests]
        most = [r.sampling.max_tokens + asked.past for r in requests]
        rows = tuple(len(p) + m for p, m in zip(prompts, most, strict=True))
        streams = len(layers) + asked.layout.streams_beside
        row_bytes = streams * spec.shape.hidden * pair.dtype.itemsize + 16
        index = Index(
            layout=asked.layout,
            layers=layers,
            n_layers=spec.n_layers,
            hidden=spec.shape.hidden,
            vocab=spec.vocab,
            dtype=str(pair.dtype).removeprefix("torch."),
            past=asked.past,
            shard_bytes=asked.shard_bytes,
            inputs={k: v for k, v in pair.inputs.items() if k.startswith("sha256:target/")},
            prompts=hashlib.sha256(json.dumps([prompts, most]).encode()).hexdigest(),
            texts=len(requests),
        )
        groups = _groups(rows, row_bytes, asked.shard_bytes)
        return cls(index=index, rows=rows, row_bytes=row_bytes, groups=groups)

    def bytes_of(self, text: int) -> int:
        """At most, on the disk."""
        return self.rows[text] * self.row_bytes + BESIDE_ROWS


def _groups(rows: Sequence[int], row_bytes: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Texts in order, as many to a group as its bytes allow."""
    groups: list[list[int]] = []
    free, room = 0, 0
    for text, count in enumerate(rows):
        size = count * row_bytes + BESIDE_ROWS
        if size > most:
            raise ConfigError(
                f"text {text} may take {size / 1e6:.3f} MB, a shard {most / 1e6:.3f} MB.",
                todo="Raise --shard-mb, shorten the texts, or keep fewer --layers.",
            )
        if size > free or count > room:
            groups.append([])
            free, room = most, MOST_ROWS
        groups[-1].append(text)
        free, room = free - size, room - count
    return tuple(map(tuple, groups))


def _begun(asked: Dump, planned: Index) -> Index:
    """The index to go on with: a new one in an empty folder, or that of the same dump."""
    folder = asked.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(p.name for p in folder.iterdir() if not p.name.startswith(TEMPORARY))
    except OSError as error:
        raise OutputError(f"{folder} cannot be used: {error.strerror}.") from error
    if not there:
        planned.write(folder)
        return planned
    if not asked.resume or INDEX not in there:
        raise OutputError(
            f"{folder} holds {len(there)} files ({', '.join(there[:3])}).",
            expected="An empty or new folder.",
            todo="Choose another, or go on with a dump that was cut off by --resume.",
        )
    found = read_index(folder)
    differences = planned.differs(found)
    if differences:
        raise OutputError(
            f"{folder} was begun with other settings: {'; '.join(differences)}.",
            expected="Those of the dump that goes on.",
            todo="Give the same ones, or another folder.",
        )
    return found


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OutputError(
            f"the dump may need {needed / 1e9:.2f} GB more, {folder} has {free / 1e9:.2f} GB free.",
            todo="Keep fewer --layers, fewer or shorter texts, or choose another disk.",
        )


def _write(
    pair: ModelPair, requests: Sequence[Request], group: Sequence[int], folder: Path, index: Index
) -> Index:
    """Store the texts of a group; the index that follows."""
    samples = greedy_texts(pair, [requests[text] for text in group], past=index.past)
    kept = (*index.layers, index.n_layers)
    captured = capture(pair, samples, layers=kept)
    contents = {
        text: shard_tensors(index.layout, text, index.layers, captured, at)
        for at, text in enumerate(group)
    }
    files = list(_files(index, group, len(index.shards)))
    sizes = dict(index.shards)
    for name, texts in files:
        with replacing(folder / name) as temporary:
            temporary.touch()  # with the rights that any new file has here
            _save({k: v for text in texts for k, v in contents[text].items()}, temporary)
        sizes[name] = (folder / name).stat().st_size
    names = {text: name for name, texts in files for text in texts}
    stored = [
        StoredText(
            number=text,
            file=names[text],
            request_id=sample.request_id,
            category=sample.category,
            prompt_len=sample.prompt_len,
            output_len=sample.output_len,
        )
        for text, sample in zip(group, samples, strict=True)
    ]
    return replace(index, shards=sizes, stored=(*index.stored, *stored))


def _files(index: Index, group: Sequence[int], shards: int) -> Iterator[tuple[str, Sequence[int]]]:
    """Names of the files of a group, each with its texts."""
    if index.layout is Layout.SPECBENCH:
        yield index.layout.file_name(shards), group
        return
    for text in group:
        yield index.layout.file_name(text), (text,)


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """Write one shard; the library has an error of its own for a full disk."""
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        raise OutputError(
            f"{path} cannot be written: {error}.", todo="Make room, then go on with --resume."
        ) from error

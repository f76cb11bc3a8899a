"""The native form of a prompt set: ``prompts.jsonl``, beside it ``workload.json``.

A line of ``prompts.jsonl`` is one prompt: ``id``, ``category`` and ``turns`` (the user's, in
order), and where wanted ``system``, ``source`` and ``held_out``. Reading is strict: an unknown key,
an id that stands twice, a hash or a count that does not agree is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.config import load_strict
from specbench.errors import ConfigError, WorkloadError
from specbench.prompts.datasets import SCHEMES
from specbench.prompts.fields import check_keys, text, texts
from specbench.prompts.prompt import SYNTHETIC, Prompt
from specbench.prompts.reading import MAX_LINE, located, parse, read_records

SCHEMA = 1

_KEYS = frozenset({"id", "category", "turns", "system", "source", "held_out"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``workload.json``: what a native set says of itself.

    ``prompts`` is their number, ``sha256`` that of the bytes of ``prompts.jsonl``, ``max_tokens``
    the longest reply that the prompts are meant for.
    """

    schema: int
    name: str
    description: str
    licence: str
    categories: tuple[str, ...]
    prompts: int
    sha256: str
    max_tokens: int
    source: str


def read_folder(folder: Path) -> tuple[Manifest, tuple[Prompt, ...]]:
    """The set in ``folder``, with every promise of its manifest checked.

    Raises:
        WorkloadError: a file is missing or malformed, or the two disagree.
    """
    path = folder / "workload.json"
    prompts_path = folder / "prompts.jsonl"
    try:
        manifest = load_strict(
            Manifest, parse(path.read_text("utf-8"), str(path)), source=str(path)
        )
    except ConfigError as error:
        raise WorkloadError(error.what, expected=error.expected, todo=error.todo) from error
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(
            f"{path} cannot be read: {error}.",
            expected="A set is a folder with workload.json and prompts.jsonl.",
        ) from error
    if manifest.schema != SCHEMA:
        raise WorkloadError(
            f"{path} has schema {manifest.schema}.", expected=f"This version reads {SCHEMA}."
        )
    if manifest.max_tokens < 1:
        raise WorkloadError(f"{path}: max_tokens={manifest.max_tokens}.", expected="At least 1.")
    found = sha256_of(prompts_path)
    if found != manifest.sha256:
        raise WorkloadError(
            f"{prompts_path} has the SHA-256 {found}, but {path.name} says {manifest.sha256}.",
            expected="The prompts that the set was published with.",
            todo="Restore the file, or write the new hash if the change is meant.",
        )
    prompts = read_prompts(prompts_path)
    categories = tuple(dict.fromkeys(prompt.category for prompt in prompts))
    if len(prompts) != manifest.prompts or set(categories) != set(manifest.categories):
        raise WorkloadError(
            f"{path} promises {manifest.prompts} prompts in {', '.join(manifest.categories)}, "
            f"but {prompts_path.name} has {len(prompts)} in {', '.join(categories)}."
        )
    return manifest, prompts


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of one ``prompts.jsonl``.

    Raises:
        WorkloadError: not the native form; the message names file and line.
    """
    prompts: dict[str, Prompt] = {}
    for record in read_records(path, longest=MAX_LINE):
        with located(record.where):
            prompt = _prompt(record.values, path)
            if prompt.prompt_id in prompts:
                raise WorkloadError(f"the id {prompt.prompt_id!r} stands twice.")
            prompts[prompt.prompt_id] = prompt
    if not prompts:
        raise WorkloadError(f"{path} is empty.", expected="At least one prompt.")
    return tuple(prompts.values())


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal.

    Raises:
        WorkloadError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error}.") from error


def _prompt(values: Mapping[str, Any], path: Path) -> Prompt:
    """One line as a prompt; a line of a known outside set is told how to be read."""
    if not values.keys() <= _KEYS:
        for scheme, form in SCHEMES.items():
            if values.keys() <= form.keys:
                raise WorkloadError(
                    "the line is not in the native form.", todo=f"Try {scheme}:{path}."
                )
    check_keys(values, _KEYS, "a prompt")
    category = text(values, "category")
    if category == SYNTHETIC:
        raise WorkloadError(f"the category {SYNTHETIC!r} is kept for random words.")
    held_out = values.get("held_out")
    if not isinstance(held_out, bool | None):
        raise WorkloadError(f"held_out={held_out!r}.", expected="true or false.")
    return Prompt(
        prompt_id=text(values, "id"),
        category=category,
        turns=texts(values, "turns"),
        system=text(values, "system", default=""),
        source=text(values, "source", default=""),
        held_out=held_out,
    )

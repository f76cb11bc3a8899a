"""Where a folder keeps its chat template: chat_template.jinja, else tokenizer_config.json.

Newer versions of transformers save the template in a file of its own, which wins where both are
there; older ones as a key, a text or a list of named ones.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.checkpoint.folder import read_json
from specbench.errors import CheckpointError

FILE, SETTINGS, KEY = "chat_template.jinja", "tokenizer_config.json", "chat_template"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """The template's text, and the file that holds it."""

    source: str
    path: Path


def read_template(folder: Path) -> ChatTemplate | None:
    """The chat template of a folder; None where it has none.

    Raises:
        CheckpointError: a file that cannot be read, or a key that holds no template.
    """
    own, settings = folder / FILE, folder / SETTINGS
    if own.is_file():
        try:
            return ChatTemplate(source=own.read_text(encoding="utf-8"), path=own)
        except (OSError, UnicodeError) as error:
            raise CheckpointError(f"{own} cannot be read: {error}.") from error
    value = read_json(settings).get(KEY) if settings.exists() else None
    if value is None:
        return None
    return ChatTemplate(source=_text(value, settings), path=settings)


def _text(value: Any, path: Path) -> str:
    """A template, or the one named default of a list of {name, template} (as in transformers)."""
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        named = {str(entry.get("name")): entry.get("template") for entry in value}
        value = named.get("default", named)
    if not isinstance(value, str):
        raise CheckpointError(
            f"{path}: chat_template holds {reprlib.repr(value)}.",
            expected="A text, or a list of {name, template} with one named default.",
        )
    return value

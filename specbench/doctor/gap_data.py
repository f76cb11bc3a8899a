"""Replies of training data, as EAGLE, SpecForge and speculators files hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.errors import WorkloadError
from specbench.prompts.reading import located, read_records
from specbench.request import Message

_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the data and the messages before it."""

    messages: tuple[Message, ...]
    text: str


def read_replies(path: Path, most: int) -> tuple[Reply, ...]:
    """The first reply of each of the first ``most`` records that have one.

    A record holds ``messages`` (role, content) or ``conversations`` (the same, or from, value);
    JSON lines, a JSON array or parquet.

    Raises:
        WorkloadError: the file cannot be read, a record has neither, or none has a reply.
    """
    found: list[Reply] = []
    for record in read_records(path):
        with located(record.where):
            reply = _reply(record.values)
        if reply is not None:
            found.append(reply)
        if len(found) == most:
            break
    if not found:
        raise WorkloadError(f"{path} holds no reply of an assistant.")
    return tuple(found)


def _reply(values: Mapping[str, Any]) -> Reply | None:
    turns = values.get("messages", values.get("conversations"))
    if not isinstance(turns, list):
        raise WorkloadError(
            "there is no list of turns.", expected="A key messages or conversations."
        )
    before: list[Message] = []
    for turn in turns:
        message = _message(turn)
        if message.role == "assistant" and before:
            return Reply(messages=tuple(before), text=message.content)
        before.append(message)
    return None


def _message(turn: Any) -> Message:
    if isinstance(turn, Mapping):
        role, content = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
        if isinstance(role, str) and isinstance(content, str):
            return Message(role=_ROLES.get(role, role), content=content)
    raise WorkloadError("a turn is no message.", expected="role and content, or from and value.")

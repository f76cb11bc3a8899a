"""OpenAI-style records: ``messages`` or ``prompt``, plain or as batch lines.

The messages are sent as they stand: what was said before the last user turn, recorded replies
included, is the prompt. Users' turns that follow each other with no reply between them are the
turns of a conversation (SPEED-Bench's prepared files write them so). A reply at the very end, as
in files for fine-tuning, is the reference and is not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from specbench.errors import WorkloadError
from specbench.prompts.fields import check_keys, identity, integer, text
from specbench.prompts.prompt import Prompt
from specbench.request import Message

_BATCH = frozenset({"custom_id", "method", "url", "body", "category"})
# Settings that the run decides, and that do not change what is asked.
_SETTINGS = frozenset(
    {"model", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stream", "user", "store"}
    | {"presence_penalty", "frequency_penalty", "repetition_penalty"}
    | {"stream_options", "logprobs", "top_logprobs"}
)
_ASKED = frozenset({"messages", "prompt", "n", "max_tokens", "max_completion_tokens", "metadata"})
OPENAI_KEYS = _BATCH | _SETTINGS | _ASKED | {"id"}


def openai_prompt(values: Mapping[str, Any], fallback: str, tally: Counter[str]) -> Prompt:
    """The prompt of one line.

    Args:
        values: ``{"messages": ...}``, ``{"prompt": ...}`` or a batch line with ``body``; either
            with ``id`` or ``custom_id`` and ``category`` (also in ``metadata``) where known.
        fallback: the id to use when the record has none.
        tally: counts what was not used.

    Raises:
        WorkloadError: a key that would change the prompt (tools, response_format), several
            choices, an unknown role, or content that is not text.
    """
    body = values
    if "body" in values:
        check_keys(values, _BATCH, "a batch line")
        if not isinstance(values["body"], dict):
            raise WorkloadError("body is no object.")
        url = text(values, "url", default="/v1/chat/completions")
        if url not in ("/v1/chat/completions", "/v1/completions"):
            raise WorkloadError(
                f"url={url!r}.", expected="/v1/chat/completions or /v1/completions."
            )
        body = values["body"]
        check_keys(body, _SETTINGS | _ASKED, "the body of a batch line")
    if body.get("n", 1) != 1:
        raise WorkloadError(f"n={body['n']} asks for several choices.", expected="n=1.")
    for key in sorted(_SETTINGS & body.keys() - {"stream", "stream_options"}):
        tally[f"records set {key}, where the run's own value holds"] += 1
    limits = [key for key in ("max_completion_tokens", "max_tokens") if body.get(key) is not None]
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise WorkloadError("metadata is no object.")
    category = values.get("category") or metadata.get("category") or "openai"
    named: dict[str, Any] = {
        "prompt_id": identity(values, "custom_id" if "custom_id" in values else "id", fallback),
        "category": text({"category": category}, "category"),
        "max_tokens": integer(body, limits[0]) if limits else None,
    }
    if ("messages" in body) == ("prompt" in body):
        raise WorkloadError("a record needs exactly one of messages and prompt.")
    if "prompt" in body:
        return Prompt(turns=(text(body, "prompt"),), raw=True, **named)
    return from_messages(body["messages"], tally, **named)


def from_messages(messages: Any, tally: Counter[str], **named: Any) -> Prompt:
    """A prompt from a list of messages; ``named`` are the other fields of :class:`Prompt`.

    Raises:
        WorkloadError: no list, no user turn, an unknown role, or content that is not text.
    """
    if not isinstance(messages, list) or not messages:
        raise WorkloadError("messages is empty or no list.")
    said = [_message(one) for one in messages]
    while said and said[-1].role == "assistant":
        said.pop()
        tally["replies at the end of messages were not sent"] += 1
    first = len(said)
    while first and said[first - 1].role == "user":
        first -= 1
    if first == len(said):
        raise WorkloadError("messages ends without a user's turn.")
    has_system = said[0].role == "system"
    return Prompt(
        system=said[0].content if has_system else "",
        history=tuple(said[1 if has_system else 0 : first]),
        turns=tuple(message.content for message in said[first:]),
        **named,
    )


def _message(value: Any) -> Message:
    """One message; a list of text parts is joined, as the servers do."""
    if not isinstance(value, dict):
        raise WorkloadError("a message is no object.")
    check_keys(value, frozenset({"role", "content", "name"}), "a message")
    role = text(value, "role")
    if role not in ("system", "developer", "user", "assistant"):
        raise WorkloadError(f"role={role!r}.", expected="system, user or assistant.")
    content = value.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text":
                raise WorkloadError("a message holds a part that is not text.")
        content = "".join(text(part, "text") for part in content)
    if not isinstance(content, str):
        raise WorkloadError("the content of a message is no text.")
    return Message(role="system" if role == "developer" else role, content=content)

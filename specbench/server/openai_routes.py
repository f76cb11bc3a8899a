"""``/v1/completions`` and ``/v1/chat/completions``: OpenAI's bodies, read strictly.

Beyond OpenAI's fields: ``top_k``, ``min_p``, ``stop_token_ids``, ``ignore_eos`` and
``stream_options.continuous_usage_stats`` as vLLM and SGLang have them, and ``return_steps``.
Where no temperature is given the server decodes greedily; ``/server_info`` says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from specbench.request import Message, Request, SamplingParams
from specbench.server.fields import Fields, RefusedError, is_ids
from specbench.server.outcome import Outcome
from specbench.server.replies import read_body
from specbench.server.respond import Asked, respond
from specbench.server.service import SERVICE
from specbench.trace import Chunk

COMPLETION_MAX_TOKENS = 16  # OpenAI's default for /v1/completions
CHAT_MAX_TOKENS = SamplingParams().max_tokens
_ROLES = ("system", "user", "assistant")


async def completions(http: web.Request) -> web.StreamResponse:
    """POST /v1/completions."""
    service = http.app[SERVICE]
    body = await read_body(http)
    return await respond(http, service, read_completion(body, service.model))


async def chat_completions(http: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    service = http.app[SERVICE]
    body = await read_body(http)
    return await respond(http, service, read_chat(body, service.model))


def read_completion(body: Any, model: str) -> Asked:
    """Check a completion request.

    Raises:
        RefusedError: a field is unknown, wrong or asks for what is not here.
    """
    fields = Fields(body)
    prompt = _prompt(fields)
    fields.only("echo", False)
    fields.only("best_of", 1)
    fields.only("suffix", "")
    fields.only("logprobs", 0, False)
    max_tokens = fields.integer("max_tokens")
    return _asked(
        fields,
        Answer(model=model, id=f"cmpl-{uuid.uuid4().hex}", chat=False, created=_now()),
        COMPLETION_MAX_TOKENS if max_tokens is None else max_tokens,
        prompt,
    )


def read_chat(body: Any, model: str) -> Asked:
    """Check a chat request.

    Raises:
        RefusedError: a field is unknown, wrong or asks for what is not here.
    """
    fields = Fields(body)
    messages = _messages(fields.take("messages"))
    fields.only("logprobs", False)
    fields.only("top_logprobs", 0)
    fields.only("tools", [])
    fields.only("tool_choice", "none")
    fields.only("response_format", {"type": "text"})
    old, new = fields.integer("max_tokens"), fields.integer("max_completion_tokens")
    if old is not None and new is not None and old != new:
        raise RefusedError(f"max_tokens={old} contradicts max_completion_tokens={new}.")
    max_tokens = new if old is None else old
    return _asked(
        fields,
        Answer(model=model, id=f"chatcmpl-{uuid.uuid4().hex}", chat=True, created=_now()),
        CHAT_MAX_TOKENS if max_tokens is None else max_tokens,
        {"messages": messages},
    )


def _asked(fields: Fields, answer: Answer, max_tokens: int, prompt: Mapping[str, Any]) -> Asked:
    """The fields that both routes have, and the check that nothing is left over."""
    named = fields.text("model")
    if named is not None and named != answer.model:
        raise RefusedError(
            f"The model {named!r} is not served here.",
            todo=f"Name {answer.model!r}, or leave the field out.",
            status=404,
            param="model",
            code="model_not_found",
        )
    fields.only("n", 1)
    fields.only("presence_penalty", 0, 0.0)
    fields.only("frequency_penalty", 0, 0.0)
    fields.only("logit_bias", {})
    fields.text("user")
    stream = fields.flag("stream")
    options = fields.table("stream_options")
    answer.usage_at_end = options.flag("include_usage")
    answer.usage_always = options.flag("continuous_usage_stats")
    options.done()
    answer.steps = fields.flag("return_steps")
    sampling = fields.sampling(max_tokens=max_tokens, seed="seed")
    fields.done()
    request = Request(request_id=answer.id, sampling=sampling, **prompt)
    return Asked(request=request, stream=stream, shape=answer)


def _prompt(fields: Fields) -> dict[str, Any]:
    """A text, a list of token ids, or a list that holds just one of these."""
    value = fields.take("prompt")
    if isinstance(value, list) and len(value) == 1 and not is_ids(value):
        value = value[0]
    if isinstance(value, str) and value:
        return {"prompt": value}
    if is_ids(value):
        return {"prompt_ids": tuple(value)}
    raise fields.wrong("prompt", value, "one text or one list of token ids, not empty")


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise RefusedError("messages must be a list of messages, not empty.", param="messages")
    return tuple(_message(entry, f"messages[{i}].") for i, entry in enumerate(value))


def _message(value: Any, where: str) -> Message:
    fields = Fields(value, where)
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.wrong("role", role, "one of " + ", ".join(_ROLES))
    content = fields.take("content")
    if isinstance(content, list):
        content = "".join(_part(part, f"{where}content[{i}].") for i, part in enumerate(content))
    if not isinstance(content, str):
        raise fields.wrong("content", content, "a text or a list of text parts")
    fields.done()
    return Message(role=role, content=content)


def _part(value: Any, where: str) -> str:
    fields = Fields(value, where)
    fields.only("type", "text")
    text = fields.text("text")
    fields.done()
    return text or ""


def _now() -> int:
    """Seconds since 1970, which ``created`` wants; nothing is measured with it."""
    return int(datetime.now(UTC).timestamp())


@dataclass(slots=True, kw_only=True)
class Answer:
    """The shape of OpenAI's answers to one request."""

    model: str
    id: str
    chat: bool
    created: int
    usage_at_end: bool = False
    usage_always: bool = False
    steps: bool = False
    _begun: bool = field(default=False, init=False)

    def piece(self, chunk: Chunk, so_far: Outcome) -> Mapping[str, Any]:
        """One chunk; the role comes with the first text, so that no empty event precedes it."""
        data = self._event(self._choice(chunk.text, None))
        if self.usage_always:
            data["usage"] = {"completion_tokens": so_far.tokens}
        return data

    def ending(self, outcome: Outcome) -> list[Mapping[str, Any]]:
        """The reason for the end, with the steps if asked, and the usage if asked."""
        last = self._event(self._choice("", outcome.finish_reason))
        if self.steps:
            last["specbench"] = outcome.extension()
        if not self.usage_at_end:
            return [last]
        return [last, {**self._event(None), "usage": outcome.usage()}]

    def whole(self, outcome: Outcome) -> Mapping[str, Any]:
        """The answer without streaming."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": outcome.finish_reason}
        if self.chat:
            choice["message"] = {"role": "assistant", "content": outcome.text}
        else:
            choice["text"] = outcome.text
        choice["logprobs"] = None
        data = {
            "id": self.id,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": outcome.usage(),
        }
        return {**data, "specbench": outcome.extension()} if self.steps else data

    def _event(self, choice: Mapping[str, Any] | None) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [] if choice is None else [choice],
        }

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        if not self.chat:
            return {**choice, "text": text}
        delta: dict[str, str] = {} if self._begun else {"role": "assistant"}
        if text or reason is None:
            delta["content"] = text
        self._begun = True
        return {**choice, "delta": delta}

"""Text in and out: tokenizer, chat template, incremental detokenisation and stop strings."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from specbench.checkpoint.chat_template import read_template
from specbench.checkpoint.folder import read_json
from specbench.errors import CheckpointError, RequestError
from specbench.request import Message, Request

# What a template can do to itself: divide by zero, overflow, recurse, index what is not there.
_TEMPLATE_FAULTS = (
    jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError,
    RecursionError, MemoryError,
)  # fmt: skip
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TextCodec:
    """The tokenizer and chat template of a target folder; templates run in a sandbox."""

    def __init__(self, folder: Path) -> None:
        """Read tokenizer.json, tokenizer_config.json and chat_template.jinja of ``folder``.

        Raises:
            CheckpointError: the tokenizer is missing or broken, or the template does not compile.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(
                f"{folder} has no tokenizer.json.", todo="Export the fast tokenizer."
            )
        try:
            self.tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {error}.") from error
        settings_path = folder / "tokenizer_config.json"
        settings = read_json(settings_path) if settings_path.exists() else {}
        self._special = {n: _token_text(settings.get(n)) for n in ("bos_token", "eos_token")}
        found = read_template(folder)
        self.template_path = None if found is None else found.path
        self.files = [path] if found is None else [path, found.path]
        self._template = None if found is None else _compile(found.source, folder)

    @property
    def vocab_size(self) -> int:
        """Ids that the tokenizer knows, added ones included."""
        return int(self.tokenizer.get_vocab_size(with_added_tokens=True))

    def prompt_ids(self, request: Request) -> tuple[int, ...]:
        """Token ids of a request's messages, raw text or ids.

        Messages go through the chat template with the reply's opening added; the template writes
        the special tokens itself. Raw text gets those that the tokenizer adds.

        Raises:
            RequestError: messages without a template, a template that fails, or an empty prompt.
        """
        if request.prompt_ids is not None:
            ids: Sequence[int] = request.prompt_ids
        elif request.prompt is not None:
            ids = self._encode(request.prompt, special=True)
        else:
            ids = self._encode(self.render(request.messages), special=False)
        if not ids:
            raise RequestError(
                f"request {request.request_id} has an empty prompt.", expected="At least one token."
            )
        return tuple(ids)

    def _encode(self, text: str, *, special: bool) -> list[int]:
        try:
            return list(self.tokenizer.encode(text, add_special_tokens=special).ids)
        except (TypeError, UnicodeError) as error:  # half a surrogate pair is no character
            raise RequestError(f"the prompt is no text: {error}.") from error

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of rendered text, with nothing added."""
        return tuple(self._encode(text, special=False))

    def with_template(self, folder: Path) -> TextCodec:
        """The same tokenizer with the chat template of another folder.

        Raises:
            CheckpointError: the folder has none, or it does not compile.
        """
        found = read_template(folder)
        if found is None:
            raise CheckpointError(f"{folder} has no chat template.")
        other = copy.copy(self)
        other._template = _compile(found.source, folder)
        return other

    def render(self, messages: Iterable[Message], *, opened: bool = True) -> str:
        """The chat template filled with ``messages``, ready for the reply.

        ``opened`` False leaves out what opens the reply.

        Raises:
            RequestError: the target has no chat template, or it refuses these messages.
        """
        if self._template is None:
            raise RequestError(
                "the target has no chat template.", todo="Send a raw prompt, or add a template."
            )
        plain = [{"role": m.role, "content": m.content} for m in messages]
        try:
            return self._template.render(
                messages=plain, add_generation_prompt=opened, tools=None, **self._special
            )
        except _TEMPLATE_FAULTS as error:
            said = str(error) or type(error).__name__
            raise RequestError(f"the chat template refuses these messages: {said}.") from error

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))


class TextStream:
    """Text of a growing list of tokens, in pieces that never split a character or a stop string.

    Two short decodes per call: the tokens since the last clean border, with the piece before as
    context, so the cost does not grow with the text.
    """

    def __init__(self, codec: TextCodec, stops: Sequence[str]) -> None:
        self._codec, self._stops = codec, tuple(s for s in stops if s)
        self._context: list[int] = []
        self._pending: list[int] = []
        self._context_text = ""
        self._sent = 0
        self._held = ""
        self.stopped = False

    @property
    def watches(self) -> bool:
        """True when tokens must be fed one at a time, to find the one that completes a stop."""
        return bool(self._stops)

    def feed(self, ids: Sequence[int]) -> str:
        """Add tokens and return the text that is now certain."""
        self._pending += ids
        whole = self._codec.decode(self._context + self._pending)
        # trailing replacement characters may be a character that is still incomplete: one for all
        # of its bytes, or one for each where a tokenizer falls back to bytes
        certain = whole.rstrip(_REPLACEMENT)
        piece = certain[len(self._context_text) + self._sent :]
        self._sent += len(piece)
        if certain == whole and self._pending:
            self._context, self._pending, self._sent = self._pending, [], 0
            self._context_text = self._codec.decode(self._context)
        return self._without_stop(piece)

    def end(self) -> str:
        """Whatever was held back, when no more tokens come."""
        if self.stopped:
            return ""
        whole = self._codec.decode(self._context + self._pending)
        rest = whole[len(self._context_text) + self._sent :]
        piece = self._without_stop(rest)
        if not self.stopped:
            piece, self._held = piece + self._held, ""
        return piece

    def _without_stop(self, piece: str) -> str:
        """Cut at the first stop string; hold back an end that could become one."""
        if not self._stops or self.stopped:
            return "" if self.stopped else piece
        text = self._held + piece
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``stop``."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0


def _token_text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _compile(source: str, folder: Path) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(source)
    except (jinja2.TemplateError, RecursionError) as error:
        raise CheckpointError(
            f"the chat template of {folder} does not compile: {error}."
        ) from error


def _refuse(message: str) -> str:
    raise jinja2.TemplateError(message)

"""SGLang's native ``/generate``, streaming, with the counts of its ``meta_info``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specbench.backends.answers import decode_event, table_in
from specbench.backends.base import Event, Finished
from specbench.backends.claims import OURS
from specbench.backends.remote import Answer, RemoteBackend
from specbench.backends.sampling import sampling_fields
from specbench.backends.speculation import (
    read_ids,
    read_meta_info,
    read_new_tokens,
    read_steps,
)
from specbench.errors import BackendError, ConfigError
from specbench.request import Request
from specbench.trace import Chunk, Finish

_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH}


class SGLangBackend(RemoteBackend):
    """Plain prompts and token ids; ``/generate`` applies no chat template.

    Works with SGLang before and after it renamed its counts, and with our own server.
    """

    protocol = "sglang"

    def _ask(self, request: Request) -> tuple[str, dict[str, Any]]:
        if request.messages:
            raise ConfigError(
                f"Request {request.request_id} holds messages, but /generate takes plain text.",
                todo="Use --backend openai for conversations, or a workload of plain prompts.",
            )
        body: dict[str, Any] = {
            "sampling_params": sampling_fields(
                request.sampling, max_tokens="max_new_tokens", seed="sampling_seed"
            ),
            "stream": True,
        }
        if request.prompt_ids is None:
            body["text"] = request.prompt
        else:
            body["input_ids"] = list(request.prompt_ids)
        if self._claims.server == OURS:
            body["return_steps"] = True
        return "/generate", body

    def _new_answer(self) -> Answer:
        return _Answer(self._claims.incremental)


class _Answer:
    """The stream of one request.

    By default every event holds the whole text and all ids so far; with SGLang's
    ``incremental_streaming_output`` it holds what is new. ``completion_tokens`` is always a total.
    """

    def __init__(self, incremental: bool) -> None:
        self._incremental = incremental
        self._length = 0
        self._tokens = 0
        self._ids: list[int] = []
        self._last: Mapping[str, Any] = {}

    def read(self, at_ns: int, payload: bytes) -> Chunk | None:
        """One event; a Chunk when it delivered something."""
        if payload == b"[DONE]":
            return None
        data = decode_event(payload)
        self._last = data
        text, tokens = self._new_text(data), self._new_tokens(data)
        if not text and not tokens:
            return None
        return Chunk(at_ns=at_ns, tokens=tokens, text=text)

    def _new_text(self, data: Mapping[str, Any]) -> str:
        text = str(data.get("text") or "")
        if self._incremental:
            return text
        new = text[self._length :]
        self._length = max(self._length, len(text))
        return new

    def _new_tokens(self, data: Mapping[str, Any]) -> int | None:
        ids = read_ids(data) or ()
        if self._incremental:
            self._ids.extend(ids)
        else:
            self._ids = list(ids)
        new = read_new_tokens(table_in(data, "meta_info"), self._tokens)
        self._tokens += new or 0
        return new

    def end(self) -> Iterator[Event]:
        """The events that follow from the whole stream."""
        meta = table_in(self._last, "meta_info")
        reason = meta.get("finish_reason") or {}
        kind = reason.get("type") if isinstance(reason, Mapping) else reason
        if not isinstance(kind, str) or kind not in _FINISH:
            why = reason.get("message", kind) if isinstance(reason, Mapping) else kind
            told = str(why or "no finish_reason")[:300]
            raise BackendError(
                f"The stream ended without a finished request ({told}).",
                todo="See the server's log.",
            )
        yield from read_steps(table_in(self._last, "specbench"))
        yield Finished(
            finish=_FINISH[kind],
            usage=read_meta_info(meta),
            output_ids=tuple(self._ids) if self._ids else None,
        )

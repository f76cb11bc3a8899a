"""Any server with OpenAI's ``/v1/completions`` and ``/v1/chat/completions``, streaming."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from specbench.backends.answers import decode_event, first_table, table_in
from specbench.backends.base import BackendFacts, Event, Finished
from specbench.backends.claims import LLAMACPP, OURS, SGLANG, VLLM
from specbench.backends.llamacpp import DraftSteps
from specbench.backends.remote import Answer, RemoteBackend
from specbench.backends.sampling import neutral_fields, sampling_fields
from specbench.backends.speculation import (
    positive,
    read_ids,
    read_new_tokens,
    read_openai_usage,
    read_steps,
)
from specbench.errors import BackendError, ConfigError
from specbench.request import Request
from specbench.trace import Chunk, Finish, Usage

_FINISH = {"stop": Finish.STOP, "tool_calls": Finish.STOP, "length": Finish.LENGTH}
# Fields beside the choices that carry counts; servers put them into different late chunks.
_COUNT_FIELDS = ("usage", "metrics", "sglext", "timings", "specbench")


class OpenAIBackend(RemoteBackend):
    """Messages go to the chat route, plain prompts and token ids to the completions route.

    Args:
        url: base address, with or without ``/v1``.
        model: the model's name there; None takes the only one that the server lists.
        api_key: bearer token.
    """

    protocol = "openai"

    def __init__(self, url: str, *, model: str | None = None, api_key: str | None = None) -> None:
        super().__init__(url, api_key=api_key)
        self._model = model

    async def open(self) -> BackendFacts:
        """Connect, find the model and ask the server what it is.

        Raises:
            ConfigError: the model is not served, or several are and none was named.
            UnreachableError, BackendError: as in ``RemoteBackend.open``.
        """
        facts = await super().open()
        listed = _models(await self._http.get_json("/v1/models"))
        self._model = choose_model(self._model, list(listed))
        return replace(
            facts,
            target=facts.target or self._model,
            max_len=facts.max_len or listed.get(self._model),
        )

    def _ask(self, request: Request) -> tuple[str, dict[str, Any]]:
        server = self._claims.server
        body: dict[str, Any] = {"model": self._model, **neutral_fields(server)}
        body |= sampling_fields(request.sampling)
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        if server in (OURS, VLLM, SGLANG):
            body["stream_options"]["continuous_usage_stats"] = True  # tokens of every chunk
        if server == OURS:
            body["return_steps"] = True
        if server == SGLANG:
            body["return_spec_tokens_details"] = True
        if server == VLLM:
            body["return_token_ids"] = True
        if server == LLAMACPP:
            body["timings_per_token"] = True
            # A prompt comes again only because arms share it; an earlier turn is another matter.
            body["cache_prompt"] = request.turn > 0
        if request.messages:
            body["messages"] = [{"role": m.role, "content": m.content} for m in request.messages]
            return "/v1/chat/completions", body
        ids = request.prompt_ids
        body["prompt"] = request.prompt if ids is None else list(ids)
        return "/v1/completions", body

    def _new_answer(self) -> Answer:
        return _Answer(drafts=self._claims.server == LLAMACPP and bool(self._claims.algorithm))


def choose_model(asked: str | None, listed: list[str]) -> str:
    """The model to name in requests.

    Raises:
        ConfigError: it is not in the list, or the list leaves a choice.
    """
    names = ", ".join(listed) or "none"
    if asked is not None and listed and asked not in listed:
        raise ConfigError(
            f"The server does not serve the model {asked!r}.", expected=f"It lists: {names}."
        )
    if asked is not None:
        return asked
    if len(listed) != 1:
        what = f"{len(listed)} models ({names})" if listed else "no model at /v1/models"
        raise ConfigError(f"The server lists {what}.", todo="Name one with --model.")
    return listed[0]


def _models(answer: Any) -> dict[str, int | None]:
    """Model names with their longest sequence, where ``/v1/models`` gives it (vLLM does)."""
    entries = answer.get("data") if isinstance(answer, Mapping) else None
    if not isinstance(entries, list):
        return {}
    listed = [e for e in entries if isinstance(e, Mapping) and isinstance(e.get("id"), str)]
    return {e["id"]: positive(e.get("max_model_len")) for e in listed}


class _Answer:
    """The stream of one request, chunk by chunk; ``drafts`` says that llama.cpp speculates."""

    def __init__(self, *, drafts: bool = False) -> None:
        self._drafts = drafts
        self._steps = DraftSteps()
        self._ids: list[int] = []
        self._tokens = 0
        self._finish: Finish | None = None
        self._counts: dict[str, Any] = {}

    def read(self, at_ns: int, payload: bytes) -> Chunk | None:
        """One event; a Chunk when it delivered something."""
        if payload == b"[DONE]":
            return None
        data = decode_event(payload)
        for name in _COUNT_FIELDS:
            if data.get(name) is not None:
                self._counts[name] = data[name]
        text = self._choice(data)
        tokens = self._new_tokens(data)
        if not text and not tokens:
            return None
        return Chunk(at_ns=at_ns, tokens=tokens, text=text)

    def _choice(self, data: Mapping[str, Any]) -> str:
        """The text of the event; reasoning counts as delivered text."""
        choices = data.get("choices")
        if not choices:
            return ""
        choice = first_table(choices)
        reason = choice.get("finish_reason")
        if reason is not None:
            if not isinstance(reason, str) or reason not in _FINISH:
                raise BackendError(f"The server ended the request with {reason!r:.120}.")
            self._finish = _FINISH[reason]
        self._ids.extend(read_ids(choice, "token_ids") or ())
        if "text" in choice:
            return str(choice["text"] or "")
        delta = table_in(choice, "delta")
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        return str(thought) + str(delta.get("content") or "")

    def _new_tokens(self, data: Mapping[str, Any]) -> int | None:
        """Tokens since the last event, where the server counts as it goes."""
        timed = self._steps.feed(table_in(data, "timings"))
        if not data.get("choices"):
            return timed or None  # llama.cpp: an end token, which had no event of its own
        new = read_new_tokens(table_in(data, "usage"), self._tokens)
        self._tokens += new or 0
        return timed if new is None else new

    def end(self) -> Iterator[Event]:
        """The events that follow from the whole stream."""
        if self._finish is None:
            raise BackendError(
                "The stream ended before its request did.", todo="See the server's log."
            )
        extension = table_in(self._counts, "specbench")
        yield from read_steps(extension)
        usage = self._with_steps(read_openai_usage(self._counts))
        ids = tuple(self._ids) if len(self._ids) == usage.completion_tokens else None
        yield Finished(finish=self._finish, usage=usage, output_ids=read_ids(extension) or ids)

    def _with_steps(self, usage: Usage) -> Usage:
        """``usage`` with llama.cpp's verify steps, where its stream tells them apart."""
        if usage.histogram is not None or not (self._drafts or usage.drafted):
            return usage
        histogram = self._steps.histogram(usage.drafted, usage.accepted)
        if histogram is None:
            return usage
        return replace(
            usage,
            verify_steps=sum(histogram),
            drafted=usage.drafted or 0,  # it says nothing of a request without drafts
            accepted=usage.accepted or 0,
            histogram=histogram,
        )

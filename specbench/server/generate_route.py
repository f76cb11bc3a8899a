"""SGLang's native ``/generate``: text or ids in, cumulative text and ``meta_info`` out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from specbench.config import SpecConfig
from specbench.request import Request, SamplingParams
from specbench.server.fields import Fields, RefusedError
from specbench.server.outcome import Outcome
from specbench.server.replies import read_body
from specbench.server.respond import Asked, respond
from specbench.server.service import SERVICE
from specbench.trace import Chunk

MAX_NEW_TOKENS = 128  # SGLang's default


async def generate(http: web.Request) -> web.StreamResponse:
    """POST /generate."""
    service = http.app[SERVICE]
    return await respond(http, service, read_generate(await read_body(http), service.spec))


def read_generate(body: Any, spec: SpecConfig) -> Asked:
    """Check a native request; one prompt each.

    Raises:
        RefusedError: a field is unknown, wrong or asks for what is not here.
    """
    fields = Fields(body)
    text, ids = fields.text("text"), fields.ids("input_ids")
    if bool(text) == bool(ids):
        raise RefusedError("Give exactly one of text and input_ids, not empty.", param="text")
    stream = fields.flag("stream")
    rid = fields.text("rid") or uuid.uuid4().hex
    answer = Answer(id=rid, spec=spec, steps=fields.flag("return_steps"))
    sampling = _sampling(fields.table("sampling_params"))
    fields.only("return_logprob", False)
    fields.only("return_hidden_states", False)
    fields.done()
    request = Request(
        request_id=f"generate-{uuid.uuid4().hex}",  # a rid may be used twice
        prompt=text or None,
        prompt_ids=ids or None,
        sampling=sampling,
    )
    return Asked(request=request, stream=stream, shape=answer)


def _sampling(fields: Fields) -> SamplingParams:
    """``sampling_params`` by SGLang's names. Without a temperature decoding is greedy."""
    max_tokens = fields.integer("max_new_tokens")
    fields.only("n", 1)
    fields.only("presence_penalty", 0, 0.0)
    fields.only("frequency_penalty", 0, 0.0)
    fields.only("repetition_penalty", 1, 1.0)
    fields.only("min_new_tokens", 0)
    fields.only("skip_special_tokens", True)
    fields.only("spaces_between_special_tokens", True)
    most = MAX_NEW_TOKENS if max_tokens is None else max_tokens
    sampling = fields.sampling(max_tokens=most, seed="sampling_seed")
    fields.done()
    return sampling


@dataclass(slots=True, kw_only=True)
class Answer:
    """The shape of ``/generate``'s answers to one request."""

    id: str
    spec: SpecConfig
    steps: bool
    _text: str = field(default="", init=False)

    def piece(self, chunk: Chunk, so_far: Outcome) -> Mapping[str, Any]:
        """The whole text so far, as SGLang streams by default."""
        self._text += chunk.text
        meta = {"id": self.id, "finish_reason": None, "completion_tokens": so_far.tokens}
        return {"text": self._text, "meta_info": meta}

    def ending(self, outcome: Outcome) -> list[Mapping[str, Any]]:
        """One last event, which has the counts; its text is that of the event before it."""
        return [self.whole(outcome)]

    def whole(self, outcome: Outcome) -> Mapping[str, Any]:
        """The answer without streaming."""
        reason: dict[str, Any] = {"type": outcome.finish_reason}
        if reason["type"] == "length":
            reason["length"] = outcome.completion_tokens
        ids = outcome.finished.output_ids
        data: dict[str, Any] = {
            "text": outcome.text,
            "output_ids": None if ids is None else list(ids),
            "meta_info": {
                "id": self.id,
                "finish_reason": reason,
                **outcome.meta_info(self.spec),
            },
        }
        if self.steps:
            data["specbench"] = outcome.extension()
        return data

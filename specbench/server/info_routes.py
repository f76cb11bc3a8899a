"""What the server says of itself, its health, and the switch to another point."""

from __future__ import annotations

from dataclasses import asdict

from aiohttp import web

from specbench import __version__
from specbench.config import SpecConfig
from specbench.request import SamplingParams
from specbench.server.fields import Fields, RefusedError
from specbench.server.generate_route import MAX_NEW_TOKENS
from specbench.server.openai_routes import CHAT_MAX_TOKENS, COMPLETION_MAX_TOKENS
from specbench.server.replies import json_reply, read_body
from specbench.server.service import SERVICE


async def health(http: web.Request) -> web.Response:
    """GET /health and /healthz: the process answers, and its engine has not stopped."""
    service = http.app[SERVICE]
    word, status = ("engine stopped", 503) if service.broken else ("ok", 200)
    return json_reply({"status": word, "in_flight": service.in_flight}, status=status)


async def ready(http: web.Request) -> web.Response:
    """GET /readyz: 200 while requests are taken, else 503."""
    taking = http.app[SERVICE].ready
    return json_reply({"ready": taking}, status=200 if taking else 503)


async def models(http: web.Request) -> web.Response:
    """GET /v1/models."""
    service = http.app[SERVICE]
    entry = {
        "id": service.model,
        "object": "model",
        "owned_by": "specbench",
        "max_model_len": service.facts.max_len,
    }
    return json_reply({"object": "list", "data": [entry]})


async def model_info(http: web.Request) -> web.Response:
    """GET /get_model_info, as SGLang has it."""
    target = http.app[SERVICE].facts.target
    return json_reply({"model_path": target, "tokenizer_path": target, "is_generation": True})


async def server_info(http: web.Request) -> web.Response:
    """GET /server_info: SGLang's names for the resolved settings, and all of our own."""
    service = http.app[SERVICE]
    spec, facts = service.spec, service.facts
    draft = facts.draft or None
    return json_reply(
        {
            "version": __version__,
            "model_path": facts.target,
            "served_model_name": service.model,
            "context_length": facts.max_len,
            "max_running_requests": service.batch_size,
            "speculative_algorithm": None if spec.is_baseline else "EAGLE3",
            "speculative_draft_model_path": draft,
            "speculative_num_steps": None if spec.is_baseline else spec.num_steps,
            "speculative_eagle_topk": None if spec.is_baseline else spec.topk,
            "speculative_num_draft_tokens": None if spec.is_baseline else spec.num_draft_tokens,
            "specbench": {
                "version": __version__,
                "backend": facts.backend,
                "target": facts.target,
                "draft": facts.draft,
                "spec": asdict(spec),
                "batch_size": service.batch_size,
                "max_len": facts.max_len,
                "device": dict(facts.device),
                "inputs": dict(facts.inputs),
                "caveats": [asdict(caveat) for caveat in facts.caveats],
                "defaults": {
                    "temperature": SamplingParams().temperature,
                    "completions_max_tokens": COMPLETION_MAX_TOKENS,
                    "chat_max_tokens": CHAT_MAX_TOKENS,
                    "generate_max_new_tokens": MAX_NEW_TOKENS,
                },
            },
        }
    )


async def configure(http: web.Request) -> web.Response:
    """POST /specbench/configure: num_steps, topk, num_draft_tokens and batch_size, all of them.

    Answers 409 while requests are in flight, 400 when the engine cannot run the point.
    """
    service = http.app[SERVICE]
    fields = Fields(await read_body(http))
    names = ("num_steps", "topk", "num_draft_tokens", "batch_size")
    given = {name: fields.integer(name) for name in names}
    fields.done()
    values = {name: value for name, value in given.items() if value is not None}
    if len(values) < len(names):
        missing = ", ".join(name for name in names if name not in values)
        raise RefusedError(f"{missing} missing.", todo="Give all four numbers.")
    batch_size = values.pop("batch_size")
    if batch_size < 1:
        raise RefusedError(
            f"batch_size is {batch_size}; it must be at least 1.", param="batch_size"
        )
    await service.configure(SpecConfig(**values), batch_size)
    return json_reply({"spec": asdict(service.spec), "batch_size": service.batch_size})

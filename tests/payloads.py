"""What real servers sent, cut to what is read: vLLM 0.32.0 and llama.cpp (xllamacpp 2026.10.11549).

Both ran the shipped pair with three drafts a step, and once without speculation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.scripted_http import EVENTS, Reply

FOLDER = Path(__file__).parent / "unit" / "backends" / "payloads"


def text_of(name: str) -> str:
    """The payload as it came."""
    return (FOLDER / name).read_text(encoding="utf-8")


def events_in(name: str) -> Reply:
    """A stream, event by event."""
    events = [f"{event}\n\n".encode() for event in text_of(name).strip().split("\n\n")]
    return Reply(pieces=events, content_type=EVENTS)


def page_of(name: str) -> Reply:
    """A page of text or JSON."""
    kind = "application/json" if name.endswith(".json") else "text/plain"
    return Reply(pieces=[text_of(name).encode()], content_type=kind)


def models(name: str) -> Reply:
    """A list of one model."""
    return Reply(pieces=[json.dumps({"data": [{"id": name}]}).encode()])


def vllm(*, speculates: bool) -> dict[str, Reply]:
    """Routes of vLLM's server."""
    page = "vllm_metrics.txt" if speculates else "vllm_plain_metrics.txt"
    return {
        "/version": Reply(pieces=[b'{"version":"0.32.0"}']),
        "/metrics": page_of(page),
        "/v1/models": models("demo/target"),
        "/v1/chat/completions": events_in("vllm_chat.sse"),
    }


def llamacpp(*, speculates: bool, slots: bool = True) -> dict[str, Reply]:
    """Routes of llama.cpp's server; without ``slots`` as ``--no-slots`` leaves them."""
    page = page_of("llamacpp_slots.json" if speculates else "llamacpp_plain_slots.json")
    off = Reply(pieces=[b'{"error":{"message":"off","code":501}}'], status=501)
    return {
        "/props": page_of("llamacpp_props.json"),
        "/slots": page if slots else off,
        "/metrics": page_of("llamacpp_metrics.txt"),
        "/v1/models": models("target.gguf"),
        "/v1/chat/completions": events_in("llamacpp_chat.sse"),
    }


def timings_in(name: str) -> list[dict[str, Any]]:
    """The ``timings`` of llama.cpp's events, in order."""
    events = [line[6:] for line in text_of(name).splitlines() if line.startswith("data: {")]
    return [event["timings"] for event in map(json.loads, events) if "timings" in event]

"""Others on an outside server, seen by its own counters."""

from __future__ import annotations

import asyncio

import pytest

from specbench.backends.openai import OpenAIBackend
from specbench.backends.traffic import Counters, Traffic, read_counters, vllm_positions
from specbench.request import Request, SamplingParams
from tests.payloads import text_of
from tests.scripted_http import Reply, as_events, as_json, scripted

VLLM = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a } b"} 1200.0
vllm:generation_tokens_total{engine="1",model_name="a } b"} 34.0 1700000000000
vllm:generation_tokens_created{engine="0"} 1.7e9
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} NaN
"""


@pytest.mark.parametrize(
    ("page", "busy", "generated"),
    [
        (VLLM, 2, 1234),
        ('llamacpp:requests_processing 0\nllamacpp:requests_deferred{x="1"} 3\n', 3, None),
        ('specbench_output_tokens_total{arm="spec"} 7\n', None, 7),
        ("vllm:num_requests_running{broken\nvllm:num_requests_waiting\n", None, None),
        ("", None, None),
        ("vllm:num_requests_running -3\nvllm:generation_tokens_total -5\n", None, None),
        ("vllm:num_requests_running 1e309\nvllm:generation_tokens_total 1e300\n", None, None),
        ('vllm:num_requests_running{a="1"} -2\nvllm:num_requests_running{a="2"} 2\n', None, None),
        ("sglang:num_running_reqs 1\nsglang:generation_tokens_total 9\n", None, 9),
    ],
)
def test_counters_are_read(page: str, busy: int | None, generated: int | None) -> None:
    assert read_counters(page) == Counters(busy=busy, generated=generated)


def test_counters_of_real_pages() -> None:
    pages = ("vllm_metrics.txt", "vllm_plain_metrics.txt", "llamacpp_metrics.txt")
    found = [read_counters(text_of(name)) for name in pages]
    assert found == [Counters(busy=0, generated=made) for made in (546, 1020, 460)]


def test_what_vllm_drafts_is_told_by_its_page_or_not_at_all() -> None:
    page = text_of("vllm_metrics.txt")
    assert vllm_positions(page) == 3
    assert vllm_positions(text_of("vllm_plain_metrics.txt")) == 0
    without = "\n".join(line for line in page.splitlines() if "per_pos" not in line)
    assert vllm_positions(without) is None  # it speculates, and does not say how deep
    assert vllm_positions("python_info 1\n") is None
    assert vllm_positions("") is None


def seen(generated: int | None, busy: int | None = 0) -> Counters:
    return Counters(busy=busy, generated=generated)


def test_tokens_beyond_ours_are_others() -> None:
    traffic = Traffic()
    assert traffic.others(seen(5000)) == ""
    for _ in range(10):
        traffic.answered(100)
    assert traffic.others(seen(6000)) == ""
    assert traffic.others(seen(6040)) == ""  # 2 % and 2 a request
    assert "generated 1041 tokens while 1000 came" in traffic.others(seen(6041))


def test_what_is_not_known_is_no_alarm() -> None:
    traffic = Traffic()
    assert traffic.others(seen(None)) == ""
    assert traffic.others(seen(5000)) == ""
    assert traffic.others(seen(10)) == ""  # started anew
    assert "generated 90 tokens while 0 came" in traffic.others(seen(100))
    assert traffic.others(seen(50)) == ""  # and again, above where it began
    assert traffic.others(seen(50)) == ""
    traffic.answered(None)
    traffic.answered(5)
    assert traffic.others(seen(9000)) == ""
    assert "held 3 requests" in traffic.others(seen(None, busy=3))


def looked(pages: list[str]) -> list[str]:
    """What is said before and after a request of 5 tokens, with ``pages`` one after the other."""
    said = as_events(
        {"choices": [{"index": 0, "text": "a b c d e", "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 5}},
    )
    request = Request(request_id="r", prompt="p", sampling=SamplingParams(max_tokens=5))

    async def body() -> list[str]:
        routes = {"/v1/models": as_json({"data": [{"id": "m"}]}), "/v1/completions": said}
        async with scripted(routes) as server:
            backend = OpenAIBackend(server.url)
            await backend.open()
            told = []
            for page in pages:
                routes["/metrics"] = Reply(pieces=[page.encode()], content_type="text/plain")
                told.append(await backend.other_traffic())
                async for _ in backend.stream(request):
                    pass
            await backend.close()
            return told

    return asyncio.run(body())


def test_a_server_that_someone_else_uses_is_told() -> None:
    idle = "vllm:num_requests_running 0\nvllm:generation_tokens_total {}\n"
    assert looked([idle.format(100), idle.format(105)]) == ["", ""]
    _, told = looked([idle.format(100), idle.format(150)])
    assert told == "the server generated 50 tokens while 5 came to this run"
    (busy,) = looked(["vllm:num_requests_running 2\n"])
    assert "held 2 requests" in busy


def test_a_server_without_a_metrics_page_is_asked_once() -> None:
    async def body() -> tuple[str, str, int]:
        async with scripted({"/v1/models": as_json({"data": [{"id": "m"}]})}) as server:
            backend = OpenAIBackend(server.url)
            await backend.open()
            told = await backend.other_traffic(), await backend.other_traffic()
            await backend.close()
            return *told, sum(path == "/metrics" for path, _ in server.asked)

    assert asyncio.run(body()) == ("", "", 1)

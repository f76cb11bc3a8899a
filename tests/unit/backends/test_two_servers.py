"""Two servers as one backend: who gets what, and which pairs are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from specbench.backends.base import BackendFacts, Finished, FixesPoints, SeesTraffic, TakesOnTrust
from specbench.backends.sglang import SGLangBackend
from specbench.backends.two_servers import TwoServers
from specbench.config import SpecConfig
from specbench.errors import ConfigError, UnreachableError
from specbench.request import Request
from specbench.trace import Evidence
from tests.scripted_http import SGLANG_INFO, Reply, Scripted, as_events, as_json, scripted

PLAIN, K1, K3 = SpecConfig.baseline(), SpecConfig.chain(1), SpecConfig.chain(3)
BASE = {
    "version": "0.5.22",
    "model_path": "/m/target",
    "speculative_algorithm": None,
    "context_length": 2048,
    "max_running_requests": 2,
}
OURS = {"version": "0", "target": "/m/target", "draft": "", "batch_size": 4, "max_len": 64,
        "device": {}, "spec": {"num_steps": 0, "topk": 1, "num_draft_tokens": 1}}  # fmt: skip
END = {"text": "a", "meta_info": {"finish_reason": {"type": "stop"}, "completion_tokens": 5}}

Use = Callable[[TwoServers, BackendFacts], Awaitable[None]]


def answers(info: dict[str, Any]) -> dict[str, Reply]:
    return {
        "/server_info": as_json(info),
        "/generate": as_events(END),
        "/metrics": generated(100),
    }


def with_two(use: Use, one: Any = SGLANG_INFO, other: Any = BASE) -> tuple[Scripted, Scripted]:
    """Run ``use`` on a backend of two servers that say ``one`` and ``other``."""

    async def body() -> tuple[Scripted, Scripted]:
        async with scripted(answers(one)) as first, scripted(answers(other)) as second:
            both = TwoServers(
                SGLangBackend(first.url, api_key="k3y"), SGLangBackend(second.url, api_key="k3y")
            )
            try:
                await use(both, await both.open())
            finally:
                await both.close()
            return first, second

    return asyncio.run(body())


async def nothing(both: TwoServers, facts: BackendFacts) -> None:
    del both, facts


async def send(both: TwoServers, name: str) -> None:
    *_, last = [event async for event in both.stream(Request(request_id=name, prompt=name))]
    assert isinstance(last, Finished)


def test_plain_decoding_goes_to_one_and_drafts_to_the_other() -> None:
    async def use(both: TwoServers, facts: BackendFacts) -> None:
        for spec, name in ((PLAIN, "p"), (K3, "s"), (PLAIN, "q")):
            await both.configure(spec, 4)
            await send(both, name)
        assert both.notes == (
            "the server runs at most 2 requests together: of 4 in flight the others wait in its "
            "queue",
        )
        with pytest.raises(ConfigError, match="runs num_steps=3"):
            await both.configure(K1, 1)
        assert both.evidence is Evidence.HISTOGRAM

    first, second = with_two(use)
    sent = [
        [body["text"] for path, body in s.asked if path == "/generate"] for s in (first, second)
    ]
    assert sent == [["s"], ["p", "q"]]
    for server in (first, second):
        assert all("Bearer k3y" in head for head in server.headers)


def test_what_is_not_put_back_is_told_of_both() -> None:
    """Two servers of ours, that both take a switch once and then are gone."""

    async def body() -> tuple[str, ...]:
        ours = {
            **answers({"specbench": {"inputs": {}, **OURS}}),
            "/specbench/configure": as_json({}),
        }
        async with scripted(ours) as first, scripted(ours) as second:
            both = TwoServers(SGLangBackend(first.url), SGLangBackend(second.url))
            await both.open()
            await both.configure(K1, 1)
            await both.configure(PLAIN, 1)
            ours["/specbench/configure"] = as_json({}, 500)
            await both.close()
            assert [first.url in both.left[0], second.url in both.left[1]] == [True, True]
            return both.left

    assert len(asyncio.run(body())) == 2


def test_the_facts_name_both() -> None:
    async def use(both: TwoServers, facts: BackendFacts) -> None:
        assert (facts.target, facts.draft, facts.max_len) == ("/m/target", "/m/draft", 2048)
        assert facts.device["server"] == "sglang 0.5.23"
        assert facts.device["baseline_server"] == "sglang 0.5.22"
        assert facts.device["url"] != facts.device["baseline_url"]
        assert facts.caveats == ()
        assert isinstance(both, FixesPoints)
        assert isinstance(both, SeesTraffic)
        assert isinstance(both, TakesOnTrust)

    with_two(use)


def test_only_drafting_points_can_be_refused() -> None:
    async def use(both: TwoServers, facts: BackendFacts) -> None:
        assert list(both.refused((PLAIN, K1, K3))) == [K1]

    with_two(use)


def generated(tokens: int) -> Reply:
    page = f"sglang:generation_tokens_total {tokens}.0\n".encode()
    return Reply(pieces=[page], content_type="text/plain")


def test_the_counters_of_each_are_held_against_its_own_tokens() -> None:
    """One makes the 50 tokens that it was asked for, the other 900 for someone else."""
    pages = answers(SGLANG_INFO), answers(BASE)

    async def body() -> list[str]:
        async with scripted(pages[0]) as first, scripted(pages[1]) as second:
            both = TwoServers(SGLangBackend(first.url), SGLangBackend(second.url))
            await both.open()
            for spec in (PLAIN, K3):
                await both.configure(spec, 1)
                assert await both.other_traffic() == ""
            for index in range(10):
                await send(both, f"r{index}")
            pages[0]["/metrics"], pages[1]["/metrics"] = generated(150), generated(1000)
            seen = []
            for spec in (K3, PLAIN):
                await both.configure(spec, 1)
                seen.append(await both.other_traffic())
            await both.close()
            return seen

    assert asyncio.run(body()) == ["", "the server generated 900 tokens while 0 came to this run"]


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (SGLANG_INFO, SGLANG_INFO, "baseline server .* is none: the server runs num_steps=3"),
        (
            SGLANG_INFO,
            BASE | {"speculative_algorithm": "NGRAM"},
            r"is none: the server speculates \(NGRAM\)",
        ),
        (BASE, BASE, "does not speculate"),
        (BASE, SGLANG_INFO, "baseline server .* is none"),
        (SGLANG_INFO, BASE | {"model_path": "/m/other"}, "different targets: /m/target and /m/oth"),
        (
            {"specbench": OURS | {"inputs": {"sha256:target/a.safetensors": "1"}}},
            {"specbench": OURS | {"inputs": {"sha256:target/a.safetensors": "2"}}},
            "target/a.safetensors differs",
        ),
    ],
)
def test_pairs_that_do_not_compare_are_refused(one: Any, other: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        with_two(nothing, one, other)


def test_targets_of_one_name_in_other_folders_are_taken_on_trust() -> None:
    async def use(both: TwoServers, facts: BackendFacts) -> None:
        (caveat,) = facts.caveats
        assert caveat.code == "server_settings"
        assert "/m/target and hub/Target" in caveat.text

    with_two(use, SGLANG_INFO, BASE | {"model_path": "hub/Target"})


def test_equal_files_are_the_same_target_whatever_it_is_called() -> None:
    async def use(both: TwoServers, facts: BackendFacts) -> None:
        assert facts.caveats == ()
        assert facts.inputs["sha256:target/a"] == facts.inputs["baseline:sha256:target/a"] == "1"
        assert both.refused((PLAIN, K1, K3)) == {}

    ours = OURS | {"inputs": {"sha256:target/a": "1"}}
    with_two(use, {"specbench": ours}, {"specbench": ours | {"target": "other"}})


def test_a_server_that_says_nothing_of_its_target_is_accepted() -> None:
    async def use(both: TwoServers, facts: BackendFacts) -> None:
        assert (facts.target, facts.caveats) == ("/m/target", ())
        await both.configure(PLAIN, 1)
        (note,) = both.notes
        assert "does not say whether it speculates" in note

    with_two(use, SGLANG_INFO, {})


def test_one_address_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="--server and --baseline-server are both"):
        TwoServers(SGLangBackend("http://127.0.0.1:1/v1"), SGLangBackend("http://127.0.0.1:1"))


def test_a_baseline_server_that_is_gone_is_unreachable() -> None:
    async def body() -> None:
        async with scripted(answers(SGLANG_INFO)) as server:
            both = TwoServers(SGLangBackend(server.url), SGLangBackend("http://127.0.0.1:9"))
            try:
                with pytest.raises(UnreachableError):
                    await both.open()
            finally:
                await both.close()

    asyncio.run(body())

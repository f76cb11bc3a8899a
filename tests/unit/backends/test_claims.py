from __future__ import annotations

import asyncio
from typing import Any

import pytest

from specbench.backends.claims import ServerClaims, ask_server
from specbench.backends.http import HttpSession
from specbench.config import SpecConfig
from specbench.errors import BackendError, ConfigError
from specbench.trace import Evidence
from specbench.verification import LOSSY_THRESHOLDS
from tests.payloads import llamacpp, vllm
from tests.scripted_http import SGLANG_INFO, Reply, as_json, scripted

SGLANG = {
    **SGLANG_INFO,
    "max_running_requests": 48,
    "internal_states": [{"avg_spec_accept_length": 2.5}],
}


def ask(routes: dict[str, Reply]) -> ServerClaims:
    async def body() -> ServerClaims:
        async with scripted(routes) as server:
            http = HttpSession(server.url)
            await http.open()
            try:
                return await ask_server(http)
            finally:
                await http.close()

    return asyncio.run(body())


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_sglang(path: str) -> None:
    claims = ask({path: as_json(SGLANG)})
    assert claims == ServerClaims(
        server="sglang",
        version="0.5.23",
        target="/m/target",
        draft="/m/draft",
        spec=SpecConfig.chain(3),
        algorithm="EAGLE3",
        batch_size=48,
        max_len=4096,
    )
    assert claims.best_evidence is Evidence.HISTOGRAM
    assert not claims.configurable


def test_sglang_without_speculation_runs_the_baseline() -> None:
    plain = {"version": "0.5.23", "speculative_algorithm": None}
    assert ask({"/server_info": as_json(plain)}).spec == SpecConfig.baseline()


@pytest.mark.parametrize("name", ["incremental_streaming_output", "stream_output"])
def test_sglang_streaming_pieces(name: str) -> None:
    assert ask({"/server_info": as_json({**SGLANG, name: True})}).incremental


def test_numbers_that_are_no_tree_leave_the_point_open() -> None:
    ngram = {**SGLANG, "speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 12}
    claims = ask({"/server_info": as_json(ngram)})
    assert (claims.spec, claims.algorithm) == (None, "NGRAM")


@pytest.mark.parametrize(
    ("routes", "server", "version", "evidence"),
    [
        ({"/version": {"version": "0.33.0"}}, "vllm", "0.33.0", Evidence.HISTOGRAM),
        (
            {"/props": {"default_generation_settings": {}, "build_info": "b1"}},
            "llama.cpp",
            "b1",
            Evidence.HISTOGRAM,
        ),
        ({}, "", "", Evidence.CHUNKS),
        ({"/server_info": {"vllm_config": "x"}, "/version": {"version": "1"}}, "vllm", "1", 3),
    ],
)
def test_others(routes: dict[str, Any], server: str, version: str, evidence: Evidence) -> None:
    claims = ask({path: as_json(data) for path, data in routes.items()})
    assert (claims.server, claims.version, claims.best_evidence) == (server, version, evidence)
    assert claims.spec is None


def test_our_own_account_from_another_version() -> None:
    with pytest.raises(BackendError, match="same version"):
        ask({"/server_info": as_json({"specbench": {"version": "9"}})})


def test_what_a_server_runs_is_checked() -> None:
    claims = ServerClaims(server="sglang", spec=SpecConfig.chain(3), batch_size=2)
    assert claims.check(SpecConfig.chain(3), 2) == ()
    with pytest.raises(ConfigError, match=r"num_steps=3 .* num_steps=5"):
        claims.check(SpecConfig.chain(5), 2)
    (note,) = claims.check(SpecConfig.chain(3), 8)
    assert "at most 2" in note


def test_what_a_server_does_not_say_is_taken_on_trust_and_said() -> None:
    (note,) = ServerClaims().check(SpecConfig.chain(5), 8)
    assert "what it drafts: num_steps=5 topk=1 num_draft_tokens=6 is taken on trust" in note
    (note,) = ServerClaims().check(PLAIN, 8)
    assert "does not say whether it speculates" in note


def test_vllm_says_by_its_counters_what_it_runs() -> None:
    claims = ask(vllm(speculates=True))
    assert (claims.server, claims.version, claims.spec) == ("vllm", "0.32.0", K3)
    assert claims.check(K3, 64) == ()
    assert list(claims.refused((PLAIN, K1, K3))) == [PLAIN, K1]
    assert ask(vllm(speculates=False)).spec == PLAIN


@pytest.mark.parametrize("status", [404, 401, 500])
def test_vllm_without_its_page_says_nothing(status: int) -> None:
    routes = vllm(speculates=True) | {"/metrics": Reply(pieces=[b"no"], status=status)}
    assert ask(routes) == ServerClaims(server="vllm", version="0.32.0")


def test_llamacpp_says_whether_it_drafts_and_how_much_it_runs_together() -> None:
    claims = ask(llamacpp(speculates=True))
    assert claims == ServerClaims(
        server="llama.cpp",
        version="b0-unknown",
        target="target.gguf",
        algorithm="its slots draft",
        batch_size=8,
        max_len=1024,
    )
    assert claims.best_evidence is Evidence.HISTOGRAM
    assert list(claims.refused((PLAIN, K3))) == [PLAIN]
    (note,) = claims.check(K3, 8)
    assert "how deep it drafts" in note
    plain = ask(llamacpp(speculates=False))
    assert (plain.spec, plain.check(PLAIN, 8)) == (PLAIN, ())


def test_llamacpp_without_its_slots_page_may_do_either() -> None:
    claims = ask(llamacpp(speculates=True, slots=False))
    assert (claims.spec, claims.algorithm, claims.batch_size) == (None, "", 8)


def thresholds(single: Any = 1.0, acc: Any = 1.0, **more: Any) -> dict[str, str]:
    """Texts of the caveats that SGLang's thresholds give, by code."""
    names = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
    said = {**SGLANG, **dict(zip(names, (single, acc), strict=True)), **more}
    return {c.code: c.text for c in ask({"/server_info": as_json(said)}).caveats}


@pytest.mark.parametrize("low", [0.8, 0, 0.0, -1])
def test_thresholds_of_sglang_below_one_are_lossy(low: float) -> None:
    assert thresholds(acc=low) == {
        LOSSY_THRESHOLDS: f"threshold_acc={low:g}, below 1: at temperature > 0 drafts are accepted "
        "that the target does not back"
    }
    assert list(thresholds(single=low, speculative_algorithm=None)) == []


@pytest.mark.parametrize("odd", ["x", 1.5, [1], False, float("nan")])
def test_a_threshold_that_cannot_be_read_is_said(odd: Any) -> None:
    found = thresholds(single=odd, acc=0)
    assert set(found) == {"server_settings", LOSSY_THRESHOLDS}
    assert f"threshold_single={odd!r}" in found["server_settings"]


@pytest.mark.parametrize("exact", [1, 1.0, None])
def test_thresholds_of_one_are_exact(exact: Any) -> None:
    assert thresholds(exact, exact) == {}


PLAIN, K1, K3 = SpecConfig.baseline(), SpecConfig.chain(1), SpecConfig.chain(3)


def test_a_server_that_says_its_point_runs_no_other() -> None:
    refused = ServerClaims(server="sglang", spec=K3).refused((PLAIN, K1, K3))
    assert list(refused) == [PLAIN, K1]
    assert all("the server runs num_steps=3" in reason for reason in refused.values())
    assert list(ServerClaims(server="sglang", spec=PLAIN).refused((PLAIN, K1))) == [K1]


def test_a_server_that_says_nothing_runs_the_one_point_that_is_asked() -> None:
    assert list(ServerClaims().refused((PLAIN, K3))) == [PLAIN]
    assert ServerClaims().refused((PLAIN,)) == {}
    with pytest.raises(ConfigError, match=r"2 points .* --num-steps 3 --topk 1"):
        ServerClaims().refused((PLAIN, K1, K3, K3))


def test_speculation_without_a_point_is_no_plain_decoding() -> None:
    claims = ServerClaims(server="sglang", algorithm="NGRAM")
    assert claims.refused((PLAIN,)) == {PLAIN: "the server speculates (NGRAM)"}
    assert list(claims.refused((PLAIN, K3))) == [PLAIN]


def test_our_own_server_runs_every_point() -> None:
    assert ServerClaims(server="specbench", spec=K3).refused((PLAIN, K1, K3)) == {}


@pytest.mark.parametrize("size", [True, -1, 0, "8", 1e309, 2**60])
def test_a_size_that_is_none_is_not_known(size: Any) -> None:
    claims = ask({"/server_info": as_json({**SGLANG, "max_running_requests": size})})
    assert claims.batch_size is None


OURS = {"version": "0", "target": "t", "draft": "d", "batch_size": 4, "max_len": 64,
        "device": {}, "inputs": {},
        "spec": {"num_steps": 1, "topk": 1, "num_draft_tokens": 2}}  # fmt: skip


@pytest.mark.parametrize(
    "odd", [{"spec": {"num_steps": -1, "topk": 1, "num_draft_tokens": 2}}, {"spec": 3},
            {"spec": {"num_steps": "x", "topk": 1, "num_draft_tokens": 2}}, {"device": 5}],
)  # fmt: skip
def test_our_own_account_with_odd_values(odd: dict[str, Any]) -> None:
    assert ask({"/server_info": as_json({"specbench": OURS})}).spec == SpecConfig.chain(1)
    with pytest.raises(BackendError, match="account of itself cannot be read"):
        ask({"/server_info": as_json({"specbench": OURS | odd})})

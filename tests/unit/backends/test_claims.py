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
from tests.scripted_http import Reply, as_json, scripted

SGLANG = {
    "version": "0.5.23",
    "model_path": "/m/target",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/m/draft",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "max_running_requests": 48,
    "context_length": 4096,
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
    assert ask({"/server_info": as_json(ngram)}).spec is None


@pytest.mark.parametrize(
    ("routes", "server", "version", "evidence"),
    [
        ({"/version": {"version": "0.33.0"}}, "vllm", "0.33.0", Evidence.HISTOGRAM),
        (
            {"/props": {"default_generation_settings": {}, "build_info": "b1"}},
            "llama.cpp",
            "b1",
            Evidence.TOTALS,
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
    assert "k5 is taken on trust" in note


def test_thresholds_of_sglang_below_one_are_a_caveat() -> None:
    low = {**SGLANG, "speculative_accept_threshold_acc": 0.8}
    (caveat,) = ask({"/server_info": as_json(low)}).caveats
    assert caveat.code == LOSSY_THRESHOLDS
    assert "threshold_acc=0.8" in caveat.text
    odd = {"speculative_accept_threshold_acc": 0, "speculative_accept_threshold_single": "x"}
    for fine in ({"speculative_accept_threshold_acc": 1}, odd):
        assert ask({"/server_info": as_json({**SGLANG, **fine})}).caveats == ()


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

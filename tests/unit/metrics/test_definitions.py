"""Every value of the shared fixture, under the tool and field that the ledger gives it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from specbench.config import SpecConfig
from specbench.metrics.definitions import Value, definitions
from specbench.metrics.example import run_of, trace_of
from specbench.metrics.sums import complete_sums

FIXTURE = json.loads(
    (Path(__file__).parents[2] / "golden" / "definitions_fixture.json").read_text("utf-8")
)
WHERE = {
    "vLLM counters / bench serve / InferenceX / llama.cpp AL": [
        ("vLLM", "counters and bench serve: mean acceptance length"),
        ("InferenceX", "golden acceptance length (vLLM path)"),
        ("llama.cpp", "mean acceptance length"),
        ("specbench", "accept_length"),
    ],
    "SGLang server log & gauge AL (no overrun rows)": [
        ("SGLang", "log and gauge spec_accept_length")
    ],
    "SGLang bench_serving (lifetime)": [("SGLang", "bench_serving accept length")],
    "SGLang meta_info per request AL": [("SGLang", "meta_info.spec_accept_length")],
    "SpecForge bench_eagle3 AL (pooled)": [("SpecForge", "bench_eagle3 accept length")],
    "specforge benchmark AL (request mean of meta_info)": [
        ("SpecForge", "specforge benchmark accept length")
    ],
    "vLLM per-request mean_acceptance_length": [("vLLM", "per-request mean_acceptance_length")],
    "AIPerf acceptance_length (request mean)": [("AIPerf", "acceptance_length")],
    "AIPerf token-weighted": [("AIPerf", "acceptance_length, token-weighted")],
    "TRT-LLM trtllm-bench AL global": [("TensorRT-LLM", "trtllm-bench acceptance length")],
    "TRT-LLM per request": [("TensorRT-LLM", "trtllm-bench acceptance length per request")],
    "TRT-LLM AR": [("TensorRT-LLM", "trtllm-bench acceptance rate")],
    "specdec_bench Average_AL (macro, chunk incl prefill)": [("specdec_bench", "Average_AL")],
    "evalscope decoded_tok/iter (>1 only)": [("evalscope", "decoded tokens per iteration")],
    "evalscope approx acceptance": [("evalscope", "approximate acceptance")],
    "GuideLLM iter_tokens_per_iteration mean": [("GuideLLM", "iter_tokens_per_iteration")],
    "Spec-Bench mean accepted tokens": [("Spec-Bench", "mean accepted tokens")],
    "SpecForge training simulated_acc_len / TRT force var": [
        ("SpecForge training", "simulated_acc_len"),
        ("TensorRT-LLM", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"),
    ],
    "vLLM AR %": [("vLLM", "draft acceptance rate, per cent")],
    "SGLang AR topk=1 ndt=4": [("SGLang", "spec_accept_rate")],
    "NeMo (AL-1)/steps": [("NeMo AutoModel", "acceptance rate")],
    "AIPerf accepted_per_verified": [("AIPerf", "accepted_per_verified")],
    "per-position unconditional": [("vLLM", "per-position acceptance rate")],
    "per-position conditional": [("specbench", "conditional")],
    "specdec_bench joint (index=tokens incl bonus)": [("specdec_bench", "joint acceptance")],
    "specdec_bench conditional": [("specdec_bench", "conditional acceptance")],
}
ON_A_TREE = "SGLang AR if ndt=8 tree, same accepted"


def ledger(spec: SpecConfig | None = None) -> dict[tuple[str, str], Value]:
    raw = FIXTURE["raw"]
    drafted = spec.num_draft_tokens - 1 if spec else raw["k"]
    run = run_of(
        *(
            trace_of(accepted, depth=raw["k"], drafted=drafted, name=name)
            for name, accepted in raw["requests"].items()
        )
    )
    return {(row.tool, row.field): row.value for row in definitions(complete_sums([run]), spec)}


def plain(value: Value) -> Any:
    return pytest.approx(list(value) if isinstance(value, tuple) else value, abs=1e-12)


@pytest.mark.parametrize("name", WHERE)
@pytest.mark.parametrize("spec", [None, SpecConfig.chain(3)])
def test_fixture_value(name: str, spec: SpecConfig | None) -> None:
    rows = ledger(spec)
    for key in WHERE[name]:
        assert FIXTURE[name] == plain(rows[key])


def test_node_denominator_of_a_tree() -> None:
    tree = SpecConfig(num_steps=3, topk=4, num_draft_tokens=8)
    assert FIXTURE[ON_A_TREE] == plain(ledger(tree)[("SGLang", "spec_accept_rate")])


def test_fixture_is_covered_whole() -> None:
    assert set(FIXTURE) == {"raw", ON_A_TREE, *WHERE}


def test_baseline_has_no_ledger_of_rates() -> None:
    rows = {
        (row.tool, row.field): row.value
        for row in definitions(
            complete_sums([run_of(trace_of([0, 0], depth=0))]), SpecConfig.baseline()
        )
    }
    assert rows[("specbench", "accept_length")] == 1.0
    assert rows[("SGLang", "spec_accept_rate")] is None
    assert rows[("NeMo AutoModel", "acceptance rate")] is None


TOOLS = (
    "vLLM", "vLLM V0", "SGLang", "SGLang before 2026-04", "SpecForge", "SpecForge training",
    "z-lab/dflash", "NeMo AutoModel", "TensorRT-LLM", "TensorRT-Edge-LLM", "specdec_bench",
    "AIPerf", "Spec-Bench", "evalscope", "GuideLLM", "llama.cpp", "mlx-vlm", "InferenceX", "ATOM",
)  # fmt: skip


def test_every_tool_of_the_definitions_is_there() -> None:
    rows = ledger(SpecConfig.chain(3))
    assert {tool for tool, _ in rows} == {"specbench", *TOOLS}
    known = [key for key, value in rows.items() if value is None]
    assert known == [("vLLM V0", "draft acceptance rate")]  # which no trace of another engine holds
    assert rows["vLLM V0", "system efficiency"] == pytest.approx(12 / 24)
    assert rows["GuideLLM", "iter_tokens_per_iteration"] == pytest.approx(1.75)
    assert rows["AIPerf", "accepted_per_verified"] == pytest.approx({"A": 10 / 16, "B": 2 / 8})


def test_every_row_says_why() -> None:
    run = run_of(trace_of([1], depth=3))
    assert all(row.why for row in definitions(complete_sums([run])))


def test_a_server_that_does_not_tell_what_its_deliveries_hold_has_the_other_rows() -> None:
    trace = trace_of([3, 2, 0, 1], depth=3)
    untold = tuple(dataclasses.replace(chunk, tokens=None) for chunk in trace.chunks)
    run = run_of(dataclasses.replace(trace, chunks=untold))
    found = {(d.tool, d.field): d.value for d in definitions(complete_sums([run]), None)}
    assert found["specdec_bench", "joint acceptance"] is None
    assert found["vLLM", "per-position acceptance rate"] is not None

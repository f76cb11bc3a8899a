from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.errors import WorkloadError
from specbench.prompts.datasets import SCHEMES, load_dataset
from specbench.prompts.prompt import SYNTHETIC, Prompt

DATA = Path(__file__).parents[1] / "data"


def load(scheme: str, name: str) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    return load_dataset(scheme, DATA / name)


def test_sharegpt_keeps_human_turns_and_counts_what_it_leaves_out() -> None:
    prompts, notes = load("sharegpt", "sharegpt.json")
    assert [prompt.prompt_id for prompt in prompts] == ["kettle_0", "reply_first_0", "kettle_0~2"]
    assert len(prompts[0].turns) == 2
    assert prompts[1].turns == ("Sort it by length, please. Größe zählt: 🙂",)
    assert prompts[2].system == "Answer in one line."
    assert prompts[2].turns == ("What is steam?",)
    assert {prompt.category for prompt in prompts} == {"sharegpt"}
    assert notes == (
        "1 conversations were cut at an empty turn",
        "2 conversations without a human turn were skipped",
        "1 ids occurred again and were numbered",
    )


def test_mt_bench_and_spec_bench_keep_categories_and_turns() -> None:
    prompts, notes = load("mt-bench", "mt_bench.jsonl")
    assert [(p.prompt_id, p.category, len(p.turns)) for p in prompts] == [
        ("1", "writing", 2),
        ("2", "math", 2),
    ]
    assert not notes
    prompts, _ = load("spec-bench", "spec_bench.jsonl")
    assert [(p.category, len(p.turns)) for p in prompts] == [
        ("writing", 2),
        ("translation", 1),
        ("rag", 1),
    ]


def test_gsm8k_asks_the_question() -> None:
    prompts, _ = load("gsm8k", "gsm8k.jsonl")
    assert [(p.prompt_id, p.category) for p in prompts] == [
        ("gsm8k-00001", "gsm8k"),
        ("gsm8k-00002", "gsm8k"),
    ]
    assert prompts[0].turns[0].startswith("A baker")


def test_humaneval_is_continued_as_plain_text_also_when_packed(tmp_path: Path) -> None:
    prompts, _ = load("humaneval", "humaneval.jsonl")
    assert [(p.prompt_id, p.raw) for p in prompts] == [("HumanEval/0", True), ("HumanEval/1", True)]
    assert prompts[0].turns[0].endswith('"""\n')
    packed = tmp_path / "HumanEval.jsonl.gz"
    packed.write_bytes(gzip.compress((DATA / "humaneval.jsonl").read_bytes()))
    assert load_dataset("humaneval", packed)[0] == prompts


def test_speed_bench_is_read_from_lines_and_from_parquet(tmp_path: Path) -> None:
    prompts, _ = load("speed-bench", "speed_bench.jsonl")
    assert [(p.prompt_id, p.category, len(p.turns)) for p in prompts] == [
        ("coding-0001", "coding", 2),
        ("rag-0001", "rag", 2),
    ]
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    first = json.loads((DATA / "speed_bench.jsonl").read_text("utf-8").splitlines()[0])
    path = tmp_path / "test-00000-of-00001.parquet"
    parquet.write_table(pa.Table.from_pylist([first]), path)
    assert load_dataset("speed-bench", path)[0] == prompts[:1]


def test_speed_bench_without_its_texts_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"line 1: question stem-0001 .* prepare script"):
        load("speed-bench", "speed_bench_unfilled.jsonl")


def test_openai_lines_of_every_form() -> None:
    prompts, notes = load("openai", "openai.jsonl")
    assert [(p.prompt_id, p.category, p.raw) for p in prompts] == [
        ("rain-1", "weather", False),
        ("openai-00002", "openai", False),
        ("openai-00003", "counting", False),
        ("openai-00004", "openai", True),
    ]
    assert prompts[1].turns == ("Where does it end?",)
    assert [message.content for message in prompts[1].history] == ["Name a river.", "The Elbe."]
    assert prompts[3].max_tokens == 32
    assert "1 replies at the end of messages were not sent" in notes
    prompts, _ = load("openai", "openai_batch.jsonl")
    assert [(p.prompt_id, p.category, p.max_tokens) for p in prompts] == [
        ("first_1", "geography", 50),
        ("second", "openai", 20),
    ]


def test_a_trace_has_arrivals_in_seconds_and_shared_prefixes() -> None:
    prompts, notes = load("trace", "trace.jsonl")
    assert [prompt.due_s for prompt in prompts] == [1.5, 1.0, 2.2505, 3.0]
    assert [prompt.max_tokens for prompt in prompts] == [40, 12, 7, None]
    assert [prompt.category for prompt in prompts] == ["trace", SYNTHETIC, SYNTHETIC, "sea"]
    one, two = (prompt.turns[0].split(" ") for prompt in prompts[1:3])
    assert (len(one), len(two)) == (700, 600)
    assert one[:512] == two[:512]
    assert notes == ("2 prompts are random words of the length that the trace gives",)


def test_lines_of_text_with_and_without_a_chat_template() -> None:
    prompts, _ = load("text", "lines.txt")
    assert [prompt.turns for prompt in prompts] == [
        ("What makes bread rise?",),
        ("How is a sail trimmed?",),
    ]
    raw, _ = load("raw", "lines.txt")
    assert [prompt.raw for prompt in (*prompts, *raw)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("scheme", "row", "named"),
    [
        ("sharegpt", {"id": "a"}, "conversations is missing"),
        ("sharegpt", {"conversations": [3]}, "no object"),
        ("sharegpt", {"conversations": [{"from": "tool", "value": "x"}]}, "'tool'"),
        ("sharegpt", {"conversations": [{"from": "human", "value": "x", "to": "y"}]}, "'to'"),
        ("sharegpt", {"conversations": [], "tools": "[]"}, "'tools'"),
        ("mt-bench", {"question_id": 1, "turns": ["x"]}, "category is missing"),
        ("mt-bench", {"question_id": 1, "category": "a", "turns": "x"}, "turns is a str"),
        ("mt-bench", {"question_id": 1, "category": "a", "turns": []}, "empty turn"),
        ("gsm8k", {"question": "x", "answers": "y"}, "Did you mean 'answer'"),
        ("humaneval", {"task_id": "a", "prompt": 3}, "prompt is a int"),
        ("speed-bench", {"category": "a", "turns": ["x"], "messages": []}, "both"),
        ("trace", {"timestamp": -1, "text_input": "x"}, "negative"),
        ("trace", {"timestamp": 1}, "no prompt"),
        ("trace", {"timestamp": 1, "text_input": "x", "input_length": 3}, "Exactly one"),
        ("trace", {"timestamp": 1, "input_length": 0}, "input_length=0"),
        ("trace", {"timestamp": 1, "input_length": 5, "hash_ids": "x"}, "hash_ids"),
        ("trace", {"timestamp": "1", "text_input": "x"}, "timestamp is a str"),
    ],
)
def test_a_record_that_is_not_of_the_set_is_refused_with_its_line(
    tmp_path: Path, scheme: str, row: dict[str, object], named: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(row) + "\n", "utf-8")
    with pytest.raises(WorkloadError, match=named) as caught:
        load_dataset(scheme, path)
    assert f"{path} line 1" in str(caught.value)


def test_every_scheme_is_described() -> None:
    assert all(scheme.about and scheme.keys for scheme in SCHEMES.values())


FIXTURES = [
    (scheme, json.loads(line))
    for scheme, name in (
        ("mt-bench", "mt_bench"),
        ("gsm8k", "gsm8k"),
        ("humaneval", "humaneval"),
        ("speed-bench", "speed_bench"),
        ("openai", "openai"),
        ("openai", "openai_batch"),
        ("trace", "trace"),
    )
    for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines()
] + [("sharegpt", row) for row in json.loads((DATA / "sharegpt.json").read_text("utf-8"))]


def change(value: Any, data: st.DataObject) -> Any:
    """``value`` with one part of it, at any depth, replaced by something else."""
    if isinstance(value, dict) and value and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(sorted(value)))
        return {**value, key: change(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.booleans()):
        i = data.draw(st.integers(0, len(value) - 1))
        return [*value[:i], change(value[i], data), *value[i + 1 :]]
    odd: list[Any] = [None, True, -1, 2**70, 10**400, "", "\ud800", "#", [], {}, [[]], {"a": 1}]
    return data.draw(st.sampled_from(odd))


@settings(deadline=None, max_examples=80)
@given(data=st.data(), fixture=st.sampled_from(FIXTURES))
def test_odd_values_are_read_or_refused_and_never_break(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, fixture: tuple[str, Any]
) -> None:
    scheme, row = fixture
    path = tmp_path_factory.getbasetemp() / "odd.jsonl"
    path.write_text(json.dumps(change(row, data)) + "\n", "utf-8")
    refused = ""
    try:
        prompts, _ = load_dataset(scheme, path)
    except WorkloadError as error:
        prompts, refused = (), str(error)
    assert len(prompts) <= 1
    assert not refused or str(path) in refused

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench import workload as module
from specbench.errors import WorkloadError
from specbench.prompts.prompt import Prompt
from specbench.request import SamplingParams
from specbench.workload import Workload, load_workload, shipped

DATA = Path(__file__).parent / "data"
GREEDY = SamplingParams(max_tokens=50)


def make(sizes: dict[str, int]) -> Workload:
    prompts = [
        Prompt(prompt_id=f"{category}-{i}", category=category, turns=("one", "two", "three"))
        for category, size in sizes.items()
        for i in range(size)
    ]
    return Workload(name="small", prompts=tuple(prompts), sha256="0")


def test_categories_take_turns_in_a_fixed_order() -> None:
    ids = [request.prompt_id for request in make({"a": 3, "b": 1, "c": 2}).requests(None, GREEDY)]
    assert ids == ["a-0", "b-0", "c-0", "a-1", "c-1", "a-2"]


@given(
    sizes=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
    data=st.data(),
)
def test_any_number_is_balanced_and_a_prefix(sizes: dict[str, int], data: st.DataObject) -> None:
    workload = make(sizes)
    everything = workload.requests(None, GREEDY)
    n = data.draw(st.integers(1, len(everything)))
    some = workload.requests(n, GREEDY)
    assert some == everything[:n]
    counts = {c: sum(r.category == c for r in some) for c in sizes}
    for category, count in counts.items():
        assert count == sizes[category] or count >= max(counts.values()) - 1


def test_a_request_carries_what_pairing_and_later_turns_need() -> None:
    first, *_, last = make({"a": 2}).requests(5, GREEDY, repeat=True)
    assert (first.request_id, first.prompt_id, first.category) == ("a-0#0", "a-0", "a")
    assert (first.workload, first.turn) == ("small", 0)
    assert first.follow_ups == ("two", "three")
    assert (last.request_id, last.prompt_id) == ("a-0#r2#0", "a-0")
    following = last.next_turn("reply")
    assert following is not None
    assert following.request_id == "a-0#r2#1"
    requests = make({"a": 2, "b": 3}).requests(17, GREEDY, repeat=True)
    assert len({request.request_id for request in requests}) == 17


def test_seeds_follow_from_the_run_and_the_prompt() -> None:
    workload = make({"a": 4})
    seeds = [request.sampling.seed for request in workload.requests(8, GREEDY, repeat=True)]
    assert len(set(seeds)) == 8
    assert seeds[:4] == [request.sampling.seed for request in workload.requests(4, GREEDY)]
    others = workload.requests(4, SamplingParams(seed=1))
    assert not set(seeds) & {request.sampling.seed for request in others}
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_turns_can_be_limited() -> None:
    request = make({"a": 1}).requests(1, GREEDY, max_turns=2)[0]
    assert request.follow_ups == ("two",)
    assert make({"a": 1}).requests(1, GREEDY, max_turns=1)[0].follow_ups == ()


def test_the_prompts_own_limit_lowers_the_runs() -> None:
    prompts = tuple(
        Prompt(prompt_id=str(limit), category="a", turns=("x",), max_tokens=limit)
        for limit in (None, 20, 80)
    )
    requests = Workload(name="w", prompts=prompts, sha256="").requests(None, GREEDY)
    assert [request.sampling.max_tokens for request in requests] == [50, 20, 50]


def test_what_cannot_be_given_says_how_many_there_are() -> None:
    workload = make({"a": 3, "b": 1})
    with pytest.raises(
        WorkloadError, match=r"5 requests asked, but small has 4 prompts\. .*--requests"
    ):
        workload.requests(5, GREEDY)
    with pytest.raises(WorkloadError, match="2 requests asked, but small has 1 prompts in b"):
        workload.requests(2, GREEDY, categories=["b"])
    with pytest.raises(WorkloadError, match=r"no category 'c'\. One of a, b"):
        workload.requests(1, GREEDY, categories=["c"])
    with pytest.raises(WorkloadError, match="0 requests"):
        workload.requests(0, GREEDY)
    with pytest.raises(WorkloadError, match="0 requests"):
        workload.requests(None, GREEDY, categories=[])
    with pytest.raises(WorkloadError, match="max_turns=0"):
        workload.requests(1, GREEDY, max_turns=0)


def test_a_timed_trace_gives_a_schedule_from_its_first_arrival() -> None:
    workload = load_workload(f"trace:{DATA / 'trace.jsonl'}")
    plan = workload.schedule(SamplingParams(max_tokens=30))
    assert [due for due, _ in plan] == pytest.approx([0.0, 0.5, 1.2505, 2.0])
    assert [request.sampling.max_tokens for _, request in plan] == [12, 30, 7, 30]
    assert (workload.timed, workload.synthetic, workload.max_tokens) == (True, True, 40)
    with pytest.raises(WorkloadError, match="no arrivals"):
        make({"a": 1}).schedule(GREEDY)


def test_plain_text_history_and_system_become_the_request() -> None:
    raw, chat = (
        load_workload(f"{scheme}:{DATA / name}").requests(None, GREEDY)
        for scheme, name in (("humaneval", "humaneval.jsonl"), ("openai", "openai.jsonl"))
    )
    assert raw[0].prompt is not None
    assert raw[0].messages == ()
    roles = {request.prompt_id: [m.role for m in request.messages] for request in chat}
    assert roles["rain-1"] == ["system", "user"]
    assert roles["openai-00002"] == ["user", "assistant", "user"]


def test_an_outside_set_is_named_and_hashed() -> None:
    path = DATA / "sharegpt.json"
    workload = load_workload(f"sharegpt:{path}")
    assert (workload.name, len(workload.prompts), workload.licence) == ("sharegpt:sharegpt", 3, "")
    assert workload.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert workload.facts()["workload.sharegpt:sharegpt.sha256"] == workload.sha256
    assert "workload.sharegpt:sharegpt.licence" not in workload.facts()
    assert workload.max_tokens is None
    assert len(workload.notes) == 3


def test_random_words_are_marked() -> None:
    workload = load_workload("synthetic:16x3@5")
    assert (workload.name, workload.categories) == ("synthetic:16x3@5", ("synthetic",))
    assert workload.synthetic
    assert workload.sha256 == load_workload("synthetic:16x3@5").sha256
    assert workload.sha256 != load_workload("synthetic:16x3@6").sha256
    assert not make({"a": 1}).synthetic


def save(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    content = json.dumps({"id": "a-1", "category": "prose", "turns": ["x"]}).encode()
    (folder / "prompts.jsonl").write_bytes(content)
    manifest = {"schema": 1, "name": name, "description": "d", "licence": "MIT", "source": "s"}
    manifest |= {"categories": ["prose"], "prompts": 1, "max_tokens": 8}
    manifest |= {"sha256": hashlib.sha256(content).hexdigest()}
    (folder / "workload.json").write_text(json.dumps(manifest), "utf-8")
    return folder


def test_folders_and_files_of_the_user_are_read(tmp_path: Path) -> None:
    folder = save(tmp_path / "mine", "mine")
    assert load_workload(folder).name == load_workload(str(folder)).name == "mine"
    assert load_workload(folder).max_tokens == 8
    alone = load_workload(folder / "prompts.jsonl")
    assert (alone.name, alone.licence, alone.max_tokens) == ("prompts", "", None)
    assert alone.prompts == load_workload(folder).prompts


def test_a_file_name_of_no_encoding_gives_a_name_that_can_be_written(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jsonl"))
    path.write_text('{"id": "a", "category": "a", "turns": ["hello"]}\n')
    made = load_workload(str(path))
    assert (made.name, made.source) == ("caf?", "caf?.jsonl")


def test_shipped_sets_are_found_beside_the_package_or_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "specbench" / "workload.py"))
    monkeypatch.chdir(tmp_path)
    assert shipped() == {}
    checkout = save(tmp_path / "workloads" / "near", "near")
    assert shipped() == {"near": checkout}
    save(tmp_path / "near", "another")
    assert load_workload("near").name == "near"
    assert load_workload("./near").name == "another"
    installed = save(tmp_path / "specbench" / "workloads" / "inner", "inner")
    assert shipped() == {"inner": installed}
    with pytest.raises(WorkloadError, match="Did you mean 'inner'"):
        load_workload("iner")


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("/nowhere/at/all", "no workload '/nowhere/at/all'"),
        ("sharegtp:/x.json", "Did you mean 'sharegpt'"),
        ("sharegpt:/nowhere.json", "/nowhere.json does not exist"),
        ("synthetic:big", "synthetic:WORDSxPROMPTS"),
        ("", "no workload ''"),
        ("x" * 5000, "no workload 'xxx"),
        ("text:" + "x" * 5000, "cannot be read"),
    ],
)
def test_what_is_missing_is_named(name: str, named: str) -> None:
    with pytest.raises(WorkloadError, match=named) as caught:
        load_workload(name)
    assert caught.value.exit_code == 2


def test_an_empty_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("", "utf-8")
    for name in (str(path), f"openai:{path}", f"text:{path}"):
        with pytest.raises(WorkloadError, match=r"empty\.jsonl (is empty|holds no prompt)"):
            load_workload(name)
    with pytest.raises(WorkloadError, match="w is empty"):
        Workload(name="w", prompts=(), sha256="")


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_set_is_well_formed(name: str) -> None:
    workload = load_workload(name)
    assert workload.name == name
    assert workload.licence
    assert workload.source
    assert workload.requests(None, GREEDY)


@pytest.mark.parametrize(
    ("name", "prompts"),
    [
        ("openai:{}/openai_prompts.jsonl", 4),
        ("openai:{}/openai_batch.jsonl", 2),
        ("trace:{}/arrivals.jsonl", 4),
        ("{}/workload", 3),
    ],
)
def test_every_example_is_well_formed(name: str, prompts: int) -> None:
    workload = load_workload(name.format(Path(__file__).parents[2] / "examples"))
    assert len(workload.requests(None, GREEDY)) == prompts

"""The parts of the gap are measured: each against a count made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.doctor.gap import FRAMEWORKS
from specbench.doctor.gap_data import read_replies
from specbench.doctor.gap_probe import GapPair, measure_gap, shipped_template
from specbench.errors import CheckpointError, WorkloadError
from specbench.request import Message, Request, SamplingParams
from tests.tiny import TEMPLATE, TinyShape, shared_pair

SHAPE = TinyShape(draft_vocab=200)  # some of the target's tokens are outside the map
SPECFORGE, SPECULATORS = FRAMEWORKS["specforge"], FRAMEWORKS["speculators"]


def asked(text: str, number: int) -> Request:
    return Request(
        request_id=f"r{number}",
        messages=(Message(role="user", content=text),),
        sampling=SamplingParams(max_tokens=24),
    )


REQUESTS = [asked(f"question {i} of some length", i) for i in range(6)]


@pytest.fixture(scope="module")
def loaded() -> GapPair:
    files = shared_pair(SHAPE)
    return GapPair.load(files.target, files.draft)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training data in both spellings, with a record that has no reply."""
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    asked, said = {"role": "user", "content": "a"}, {"role": "assistant", "content": "long " * 9}
    theirs = [{"from": "human", "value": "b"}, {"from": "gpt", "value": "other " * 9}]
    records = [{"messages": [asked, said]}, {"conversations": theirs}, {"messages": [asked]}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_engines_figure_is_the_offline_one_where_steps_begin(loaded: GapPair) -> None:
    probed = measure_gap(loaded, REQUESTS, SPECFORGE, num_steps=3)
    measured = probed.measured
    assert measured.at_steps == measured.engine
    assert measured.full is not None
    assert measured.restricted is not None
    assert measured.unknown is not None
    assert 0 < measured.unknown < 1
    assert measured.full <= 1 - measured.unknown  # a token outside the map is never right
    assert measured.full < measured.restricted
    assert 1 < probed.accept_length < 4
    assert measured.off_policy is None
    assert measured.template is None


def test_training_data_is_scored_by_the_frameworks_definition(loaded: GapPair, data: Path) -> None:
    replies = read_replies(data, 10)
    assert [reply.messages[0].content for reply in replies] == ["a", "b"]
    inside = measure_gap(loaded, REQUESTS, SPECULATORS, num_steps=2, training=replies)
    over_all = measure_gap(loaded, REQUESTS, SPECFORGE, num_steps=2, training=replies)
    assert inside.measured.off_policy is not None
    assert over_all.measured.off_policy is not None
    assert inside.measured.off_policy > over_all.measured.off_policy
    assert inside.measured.off_policy != inside.measured.restricted
    assert "2 training replies" in inside.told[1]


def test_a_template_of_training_is_scored_apart(loaded: GapPair, tmp_path: Path) -> None:
    same, other = tmp_path / "same.jinja", tmp_path / "other.jinja"
    same.write_text(TEMPLATE)
    other.write_text("{% for m in messages %}{{ m.content }}: {% endfor %}")
    figures = [
        measure_gap(loaded, REQUESTS, SPECFORGE, num_steps=1, template=template).measured
        for template in (same, other)
    ]
    assert figures[0].template == figures[0].full
    assert figures[1].template != figures[1].full
    with pytest.raises(CheckpointError, match=r"none\.jinja cannot be read"):
        measure_gap(loaded, REQUESTS, SPECFORGE, num_steps=1, template=tmp_path / "none.jinja")


def test_the_drafts_own_template_counts_where_it_differs(tmp_path: Path) -> None:
    target, draft = tmp_path / "t", tmp_path / "d"
    target.mkdir()
    draft.mkdir()
    assert shipped_template(target, draft) is None
    (draft / "chat_template.jinja").write_text("one")
    assert shipped_template(target, draft) == draft / "chat_template.jinja"
    (target / "tokenizer_config.json").write_text(json.dumps({"chat_template": "one"}))
    assert shipped_template(target, draft) is None
    (target / "chat_template.jinja").write_text("two")
    assert shipped_template(target, draft) == draft / "chat_template.jinja"


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"text": "x"}, "no list of turns"),
        ({"messages": [{"role": "user"}]}, "no message"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no reply"),
    ],
)
def test_data_without_replies_is_refused(
    tmp_path: Path, record: dict[str, object], told: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(WorkloadError, match=told):
        read_replies(path, 5)

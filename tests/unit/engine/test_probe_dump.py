"""A dump scores exactly as the probe that runs the target, and survives being killed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

from specbench.config import SpecConfig
from specbench.engine import probe_dump
from specbench.engine.pair import ModelPair
from specbench.engine.probe import ProbeResult, probe, probe_stored
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_dump import Dump, dump
from specbench.engine.probe_store import INDEX, Index, Layout, read_index
from specbench.errors import CheckpointError, ConfigError, OutputError, WorkloadError
from specbench.request import Request
from tests.drive import new_request, prompts

STEPS = 4
TREE = SpecConfig(num_steps=STEPS, topk=2, num_draft_tokens=8)
WIRED = (1, 2, 3)  # what the draft takes
SHARD = 200_000


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    found = [new_request(f"r{i}", p, max_tokens=10 + 3 * i) for i, p in enumerate(prompts(5))]
    return [dataclasses.replace(r, category=f"c{i % 2}") for i, r in enumerate(found)]


@pytest.fixture(scope="module")
def live(pair: ModelPair, draft: ProbeDraft, requests: list[Request]) -> ProbeResult:
    return probe(pair, draft, requests, steps=STEPS, positions=10_000, tree=TREE)


def stored(pair: ModelPair, draft: ProbeDraft, path: Path, **bounds: int) -> ProbeResult:
    asked = {"steps": STEPS, "positions": 10_000, "requests": 100, **bounds}
    tree = dataclasses.replace(TREE, num_steps=asked["steps"])
    return probe_stored(pair, draft, path, tree=tree, **asked)


def dumped(pair: ModelPair, requests: Sequence[Request], folder: Path, **asked: object) -> Index:
    settings = {"layers": WIRED, "past": STEPS, "shard_bytes": SHARD, **asked}
    return dump(pair, requests, Dump(folder=folder, **settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(
    pair: ModelPair, requests: list[Request], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An undisturbed dump of every layer in several shards."""
    folder = tmp_path_factory.mktemp("dump") / "whole"
    dumped(pair, requests, folder, layers=(0, 1, 2, 3, 4))
    return folder


@pytest.mark.parametrize("layout", Layout)
def test_a_dump_scores_as_the_live_probe(
    pair: ModelPair,
    draft: ProbeDraft,
    requests: list[Request],
    live: ProbeResult,
    tmp_path: Path,
    layout: Layout,
) -> None:
    """Every count of every reply, of chains, trees and walks, for each layout."""
    index = dumped(pair, requests, tmp_path / "d", layout=layout)
    found = stored(pair, draft, tmp_path / "d")
    assert index.complete
    assert found.replies == live.replies
    assert found.own_text
    assert found.notes[0].startswith("stream 0 is physical layer 1")
    kind = "after" if layout is Layout.SPECFORGE else "before"
    assert found.notes[3].startswith(f"last state is {kind} the final norm")
    assert sum(r.tree_accepted for r in found.replies) > sum(r.accepted for r in found.replies) > 0


def test_shards_are_bounded_and_hold_what_the_index_says(
    pair: ModelPair, draft: ProbeDraft, live: ProbeResult, whole: Path
) -> None:
    index = read_index(whole)
    assert len(index.shards) > 2
    assert max(index.shards.values()) <= SHARD
    assert sorted(p.name for p in whole.iterdir()) == sorted([INDEX, *index.shards])
    assert stored(pair, draft, whole).replies == live.replies
    for text in index.stored:
        tensors = load_file(whole / text.file)
        mask = tensors[f"{text.number}.loss_mask"]
        assert int(mask.sum()) == text.output_len
        assert mask.nonzero()[0].item() == text.prompt_len
        last, normed = (tensors[f"{text.number}.last_{kind}_norm"] for kind in ("pre", "post"))
        assert last.equal(tensors[f"{text.number}.hidden.4"])
        assert not last.equal(normed)


def test_a_killed_dump_goes_on_and_ends_with_the_same_files(
    pair: ModelPair, draft: ProbeDraft, requests: list[Request], whole: Path, tmp_path: Path
) -> None:
    class KilledError(Exception):
        pass

    def kill(done: int, texts: int) -> None:
        if done >= 2:
            raise KilledError

    asked = Dump(folder=tmp_path / "d", layers=(0, 1, 2, 3, 4), past=STEPS, shard_bytes=SHARD)
    with pytest.raises(KilledError):
        dump(pair, requests, asked, kill)
    assert "the dump was cut off: 3 texts are missing" in stored(pair, draft, asked.folder).notes
    begun = read_index(asked.folder)
    assert 2 <= len(begun.stored) < begun.texts == 5
    (asked.folder / "features-00002.safetensors").write_bytes(b"part of a shard")
    calls: list[int] = []
    resumed = dataclasses.replace(asked, resume=True)
    assert dump(pair, requests, resumed, lambda done, _: calls.append(done)).complete
    assert calls[0] > 2  # what was there was not made again
    for file in whole.iterdir():
        assert (asked.folder / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_folder_that_holds_something_is_refused(
    pair: ModelPair, requests: list[Request], whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=r"holds \d files"):
        dumped(pair, requests, whole)
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match=r"holds 1 files \(mine\.txt\)"):
        dumped(pair, requests, tmp_path, resume=True)


def test_going_on_with_other_settings_names_both(
    pair: ModelPair, requests: list[Request], whole: Path
) -> None:
    with pytest.raises(
        OutputError, match=r"layers \(1, 2, 3\) and \(0, 1, 2, 3, 4\); past 5 and 4"
    ):
        dumped(pair, requests, whole, past=5, resume=True)
    other = [dataclasses.replace(requests[0], prompt_ids=(1, 2, 3)), *requests[1:]]
    with pytest.raises(OutputError, match="prompts"):
        dumped(pair, other, whole, layers=(0, 1, 2, 3, 4), resume=True)


def test_room_is_looked_for_first(
    pair: ModelPair, requests: list[Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100_000))
    with pytest.raises(OutputError, match=r"may need 0\.00 GB more, .* has 0\.00 GB free"):
        dumped(pair, requests, tmp_path / "d")
    assert [p.name for p in (tmp_path / "d").iterdir()] == [INDEX]
    monkeypatch.undo()
    assert dumped(pair, requests, tmp_path / "d", resume=True).complete


def test_what_cannot_be_dumped(pair: ModelPair, requests: list[Request], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"text 0 may take 0\.058 MB, a shard 0\.001 MB"):
        dumped(pair, requests, tmp_path / "a", shard_bytes=1000)
    for layers in ((), (3, 1), (1, 1), (5,), (-1, 2)):
        with pytest.raises(ConfigError, match=r"indices in 0\.\.4"):
            dumped(pair, requests, tmp_path / "b", layers=layers)
    with pytest.raises(WorkloadError, match="no text"):
        dumped(pair, [], tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def copied(whole: Path, folder: Path) -> Path:
    shutil.copytree(whole, folder)
    return folder


def edited(folder: Path, **changes: object) -> Path:
    table = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(table | changes))
    return folder


def test_damage_is_an_error_with_both_numbers(
    pair: ModelPair, draft: ProbeDraft, whole: Path, tmp_path: Path
) -> None:
    cut = copied(whole, tmp_path / "cut")
    shard = cut / "features-00001.safetensors"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-8])
    with pytest.raises(WorkloadError, match=f"has {size - 8} bytes, the index says {size}"):
        stored(pair, draft, cut)
    shard.unlink()
    with pytest.raises(WorkloadError, match="has None bytes"):
        stored(pair, draft, cut)
    with pytest.raises(WorkloadError, match="no index of this version"):
        stored(pair, draft, edited(copied(whole, tmp_path / "old"), version=99))
    with pytest.raises(WorkloadError, match="not well formed"):
        stored(pair, draft, edited(copied(whole, tmp_path / "key"), novel=1))
    broken = copied(whole, tmp_path / "json")
    (broken / INDEX).write_text("{")
    with pytest.raises(CheckpointError, match="JSON"):
        stored(pair, draft, broken)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_len": -5},
        {"prompt_len": 1.5},
        {"output_len": 0},
        {"output_len": True},
        {"number": 7},
        {"request_id": None},
        {"category": {}},
    ],
)
def test_an_edited_text_of_the_index_is_not_counted(
    whole: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    folder = copied(whole, tmp_path / "one")
    texts = json.loads((folder / INDEX).read_text())["stored"]
    with pytest.raises(WorkloadError, match="not well formed"):
        read_index(edited(folder, stored=[texts[0] | change, *texts[1:]]))
    with pytest.raises(WorkloadError, match="not well formed"):
        read_index(edited(folder, stored=[*texts, texts[0]]))


def test_a_reply_longer_than_its_shard(
    pair: ModelPair, draft: ProbeDraft, whole: Path, tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path / "long")
    texts = json.loads((folder / INDEX).read_text())["stored"]
    with pytest.raises(WorkloadError, match="1000 reply tokens, its shard"):
        stored(pair, draft, edited(folder, stored=[texts[0] | {"output_len": 1000}, *texts[1:]]))


def test_a_dump_of_another_target(
    pair: ModelPair, draft: ProbeDraft, whole: Path, tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path / "other")
    inputs = dict.fromkeys(json.loads((folder / INDEX).read_text())["inputs"], "0" * 64)
    with pytest.raises(WorkloadError, match="dumped from another target"):
        stored(pair, draft, edited(folder, inputs=inputs))


def test_a_shard_of_the_right_size_that_is_none(
    pair: ModelPair, draft: ProbeDraft, whole: Path, tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path / "junk")
    shard = folder / "features-00000.safetensors"
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    with pytest.raises(WorkloadError, match="cannot be read"):
        stored(pair, draft, folder)


def test_a_draft_that_takes_other_layers(
    pair: ModelPair, draft: ProbeDraft, requests: list[Request], tmp_path: Path
) -> None:
    dumped(pair, requests[:1], tmp_path / "d", layers=(1, 3))
    with pytest.raises(
        WorkloadError, match=r"holds physical layers \[1, 3\], .* takes \[1, 2, 3\]"
    ):
        stored(pair, draft, tmp_path / "d")


def test_more_steps_than_were_dumped(pair: ModelPair, draft: ProbeDraft, whole: Path) -> None:
    with pytest.raises(WorkloadError, match="goes 4 tokens past each cut, too few for 7 steps"):
        stored(pair, draft, whole, steps=7)


def test_budgets_take_whole_texts(
    pair: ModelPair, draft: ProbeDraft, live: ProbeResult, whole: Path
) -> None:
    few = stored(pair, draft, whole, requests=2)
    assert few.replies == live.replies[:2]
    assert few.left_out == 3
    assert stored(pair, draft, whole, positions=24).replies == live.replies[:2]
    with pytest.raises(WorkloadError, match=r"none of 0 texts .* 5 were left out by the budgets"):
        stored(pair, draft, whole, positions=3)


def test_what_is_dumped_lies_where_the_index_says(tmp_path: Path) -> None:
    """Groups are planned from the longest that a text can become: none is larger than a shard."""
    room = probe_dump.BESIDE_ROWS
    groups = probe_dump._groups([10, 10, 30, 5, 5], 100, 2 * room + 2500)
    assert groups == ((0, 1), (2,), (3, 4))

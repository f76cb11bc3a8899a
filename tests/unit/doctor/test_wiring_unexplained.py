"""What no wiring explains is said, not passed over: a head beside another map, broken weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specbench import demo
from specbench.doctor import zoo_edits
from specbench.doctor.checks_subject import read_subject
from specbench.doctor.checks_wiring import Loaded, load, probe_pair
from specbench.doctor.findings import Severity, rank
from specbench.doctor.wiring import Judge, Verdict
from specbench.doctor.wiring_candidates import Change, single_changes
from specbench.doctor.wiring_search import thinned
from specbench.doctor.wiring_unexplained import unexplained
from specbench.request import SamplingParams
from specbench.workload import load_workload

Tensors = dict[str, np.ndarray]
REQUESTS = load_workload("default").requests(15, SamplingParams(max_tokens=32))
O_PROJ = "midlayer.self_attn.o_proj.weight"


@pytest.fixture(scope="module")
def sound() -> Loaded:
    return load(read_subject(demo.TARGET, demo.DRAFT), REQUESTS)


def damaged(folder: Path, change: Callable[[Tensors], object]) -> Path:
    """A copy of the shipped draft with other tensors."""
    shutil.copytree(demo.DRAFT, folder)
    values = load_file(folder / "model.safetensors")
    change(values)
    contiguous = {name: np.ascontiguousarray(value) for name, value in values.items()}
    save_file(contiguous, folder / "model.safetensors")
    return folder


def another_map(t: Tensors) -> None:
    """Head and map shifted by a token: consistent with t2d, so that no static check objects."""
    t["d2t"], t["t2d"] = t["d2t"] + 1, np.roll(t["t2d"], 1)


def interleaved(t: Tensors) -> None:
    """Rows of queries and keys in the order of pairs that lie side by side (GGUF, GPT-J)."""
    for name, heads in (("q", 4), ("k", 2)):
        key = f"midlayer.self_attn.{name}_proj.weight"
        rows, columns = t[key].shape
        pairs = t[key].reshape(heads, 2, rows // heads // 2, columns)
        t[key] = pairs.swapaxes(1, 2).reshape(rows, columns)


def swapped_halves(t: Tensors) -> None:
    for name in zoo_edits.QKV:
        t[name] = np.concatenate(np.split(t[name], 2, axis=1)[::-1], axis=1)


def claimed(loaded: Loaded) -> Verdict:
    """What the probe says where no candidate beats the claim."""
    draft = loaded.draft
    base = Change(wire="", name="as the files claim", wiring=draft.claimed)
    found = Judge(draft, loaded.captured).candidate(base, draft.claimed)
    return Verdict(
        claimed=found, ranked=(), winner=None, repairs=(), requests=len(loaded.captured.samples),
        positions=1, longest=1, searched=0, unknown_share=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda t: t.update({"lm_head.weight": t["lm_head.weight"][::-1]}), "wiring.head"),
        (lambda t: t.update({"lm_head.weight": 0 * t["lm_head.weight"]}), "wiring.none"),
        (lambda t: t.update({"fc.weight": 0 * t["fc.weight"]}), "wiring.none"),
        (lambda t: t.update({O_PROJ: t[O_PROJ].T}), "wiring.weak"),
    ],
)
def test_broken_weights_are_not_passed_over(
    sound: Loaded, tmp_path: Path, change: Callable[[Tensors], object], code: str
) -> None:
    subject = read_subject(demo.TARGET, damaged(tmp_path / "draft", change))
    loaded = load(subject, REQUESTS, captured=sound.captured)
    found = unexplained(loaded.draft, loaded.captured, claimed(loaded))
    assert found is not None
    assert found.code == code
    assert (found.severity is Severity.WARNING) == (code == "wiring.weak")


@pytest.mark.parametrize(
    ("change", "wire"), [(interleaved, "adjacent"), (swapped_halves, "token_first")]
)
def test_another_order_of_weights_is_a_candidate_that_undoes_it(
    sound: Loaded, tmp_path: Path, change: Callable[[Tensors], object], wire: str
) -> None:
    subject = read_subject(demo.TARGET, damaged(tmp_path / "draft", change))
    draft = load(subject, REQUESTS, captured=sound.captured).draft
    undo = [c for c in single_changes(draft.claimed, sound.bounds) if c.wire == wire]
    assert len(undo) == 1
    judge, best = Judge(draft, sound.captured), claimed(sound).claimed.first
    found = judge.candidate(undo[0], draft.claimed)
    assert found.better
    assert found.first == pytest.approx(best, abs=0.002)


def test_the_doctor_names_another_map_first(sound: Loaded, tmp_path: Path) -> None:
    """And does not say beside it that nothing beats the claim."""
    subject = read_subject(demo.TARGET, damaged(tmp_path / "draft", another_map))
    loaded = load(subject, REQUESTS, captured=sound.captured)
    probed = probe_pair(subject, loaded, serve=False, templates=False, budget=1)
    first = rank(probed.findings)[0]
    assert (first.code, first.severity) == ("wiring.head", Severity.ERROR)
    assert any("target ids -1 from what d2t says" in fact.text for fact in first.evidence)
    assert not probed.confirmed


def test_a_sound_draft_and_one_that_lacks_words_are_not_accused(
    sound: Loaded, tmp_path: Path
) -> None:
    """Of tokens outside its vocabulary a draft cannot be right: checks_coverage names those."""
    assert unexplained(sound.draft, sound.captured, claimed(sound)) is None
    shutil.copytree(demo.DRAFT, tmp_path / "draft")
    zoo_edits.without_tokens(0.6)(tmp_path / "draft")
    poor = load(read_subject(demo.TARGET, tmp_path / "draft"), REQUESTS, captured=sound.captured)
    assert claimed(poor).claimed.first < 0.4
    assert unexplained(poor.draft, poor.captured, claimed(poor)) is None


def test_few_requests_accuse_nobody(sound: Loaded, tmp_path: Path) -> None:
    subject = read_subject(demo.TARGET, damaged(tmp_path / "draft", another_map))
    few = load(subject, REQUESTS, captured=thinned(sound.captured, 4))
    assert unexplained(few.draft, few.captured, claimed(few)) is None

"""The zoo is well formed, every edit is a real one, and what files show is named first."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from specbench import demo
from specbench.doctor.catalogue import kind_of
from specbench.doctor.checks import static_findings
from specbench.doctor.checks_launch import check_launch, parse_launch
from specbench.doctor.checks_subject import read_subject
from specbench.doctor.findings import Finding, Severity, rank
from specbench.doctor.zoo import Cause, Fault, cause, every_fault, kinds_of
from specbench.doctor.zoo_edits import own_embedding, reversed_fc, without_tokens
from specbench.engine.faults import FAULTS

ZOO = every_fault()
STATIC = ("ids.", "fc.", "map.", "draft.", "vocab.size", "norms.", "tensors.", "head.", "rope.",
          "dtype.", "launch.", "tokenizer.", "template.differs")  # fmt: skip


def folders(fault: Fault, work: Path) -> tuple[Path, Path]:
    """Edited copies, as the benchmark makes them."""
    target = demo.TARGET
    if fault.target is not None or fault.draft is not None:
        (work / "target").symlink_to(demo.TARGET.resolve())
    if fault.target is not None:
        (work / "target").unlink()
        target = Path(shutil.copytree(demo.TARGET, work / "target"))
        fault.target(target)
    draft = demo.DRAFT
    if fault.draft is not None:
        draft = Path(shutil.copytree(demo.DRAFT, work / "draft"))
        fault.draft(draft)
    return target, draft


def test_the_zoo_is_as_large_as_it_must_be() -> None:
    assert len({fault.name for fault in ZOO}) == len(ZOO)
    numbers = {failure for fault in ZOO for failure in fault.failures}
    assert numbers <= {f"F{n}" for n in range(1, 61)}
    assert len(numbers) >= 30
    assert len(kinds_of(ZOO)) >= 25


def test_every_switch_is_used() -> None:
    assert {fault.switch for fault in ZOO if fault.switch} == set(FAULTS)


@pytest.mark.parametrize("fault", ZOO, ids=lambda fault: fault.name)
def test_a_right_cause_is_registered_for_this_failure(fault: Fault) -> None:
    for right in fault.causes:
        assert set(kind_of(right.code).failures) & set(fault.failures), right.code


@pytest.mark.parametrize(
    "fault", [f for f in ZOO if f.draft or f.target], ids=lambda fault: fault.name
)
def test_an_edit_changes_files_and_spares_the_shipped_pair(fault: Fault, tmp_path: Path) -> None:
    target, draft = folders(fault, tmp_path)
    for edited, shipped, edit in (
        (target, demo.TARGET, fault.target),
        (draft, demo.DRAFT, fault.draft),
    ):
        same = contents(edited) == contents(shipped)
        assert same is (edit is None)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "fault",
    [f for f in ZOO if any(c.code.startswith(STATIC) for c in f.causes) and not f.switch],
    ids=lambda fault: fault.name,
)
def test_what_files_and_arguments_show_is_named_first(fault: Fault, tmp_path: Path) -> None:
    target, draft = folders(fault, tmp_path)
    subject = read_subject(target, draft, engine=fault.engine)
    found = list(static_findings(subject))
    if fault.launch:
        found += check_launch(parse_launch(fault.launch), subject.arch)
    assert fault.place(rank(found)) == 1, [(f.code, f.title) for f in rank(found)]


def finding(code: str, title: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(code=code, severity=severity, title=title)


def test_a_place_needs_the_code_and_the_words() -> None:
    fault = Fault(
        name="x", failures=("F2",), kind="x", shape="first", switch="theta",
        causes=(*cause("wiring.slots", "all layers +1"), Cause(code="parity.*")),
    )  # fmt: skip
    note = finding("ids.engines", "a note", Severity.NOTE)
    other = finding("wiring.slots", "better with all layers -1 than")
    right = finding("wiring.slots", "better with all layers +1 than")
    assert fault.place([note, right]) == 1
    assert fault.place([other, right]) == 2
    assert fault.place([other, note]) is None
    assert fault.place([finding("parity.cache", "caches disagree")]) == 1


def test_an_entry_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        Fault(name="x", failures=("F2",), kind="x", shape="first", causes=cause("ids.order"))
    with pytest.raises(ValueError, match="no shape"):
        Fault(
            name="x", failures=("F2",), kind="x", shape="odd", switch="y", causes=cause("ids.order")
        )


def edited(tmp_path: Path, name: str) -> dict[str, np.ndarray]:
    """The draft's tensors after the edit of an entry."""
    (fault,) = (f for f in ZOO if f.name == name)
    return load_file(folders(fault, tmp_path)[1] / "model.safetensors")


def test_a_reversed_fc_undoes_itself() -> None:
    before = load_file(demo.DRAFT / "model.safetensors")
    after = dict(before)
    reversed_fc(after)
    assert not np.array_equal(after["fc.weight"], before["fc.weight"])
    assert np.array_equal(after["fc.weight"][:, :256], before["fc.weight"][:, 512:])
    reversed_fc(after)
    assert np.array_equal(after["fc.weight"], before["fc.weight"])


def test_a_cut_vocabulary_keeps_rows_and_ids_together(tmp_path: Path) -> None:
    before = load_file(demo.DRAFT / "model.safetensors")
    draft = Path(shutil.copytree(demo.DRAFT, tmp_path / "draft"))
    without_tokens(0.6)(draft)
    after = load_file(draft / "model.safetensors")
    old = np.arange(len(before["d2t"])) + before["d2t"]
    new = np.arange(len(after["d2t"])) + after["d2t"]
    assert len(new) < 0.65 * len(old)
    for row in (0, 100, len(new) - 1):
        place = int(np.flatnonzero(old == new[row])[0])
        assert np.array_equal(after["lm_head.weight"][row], before["lm_head.weight"][place])
    assert not any(f.severity is Severity.ERROR for f in static_findings(
        read_subject(demo.TARGET, draft)
    ))  # fmt: skip


def test_an_embedding_of_its_own_is_another_one_of_the_same_lengths(tmp_path: Path) -> None:
    (tmp_path / "target").symlink_to(demo.TARGET.resolve())
    draft = Path(shutil.copytree(demo.DRAFT, tmp_path / "draft"))
    own_embedding(draft)
    own = load_file(draft / "model.safetensors")["embed_tokens.weight"]
    shared = load_file(demo.TARGET / "model.safetensors")["model.embed_tokens.weight"]
    assert not np.array_equal(own, shared)
    assert np.array_equal(np.abs(own), np.abs(shared))


def test_dequantised_weights_have_few_values(tmp_path: Path) -> None:
    values = edited(tmp_path, "draft_rounded")["fc.weight"].reshape(-1, 32)
    assert max(len(np.unique(np.abs(row.astype(np.float32)))) for row in values[:64]) <= 9

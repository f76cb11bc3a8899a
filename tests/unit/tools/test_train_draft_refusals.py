"""What tools/train_draft.py refuses: at once, by name, with the exit codes of specbench."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from safetensors.torch import save_file  # noqa: E402

from tests.tiny import shared_pair, write_pair  # noqa: E402
from tools import command, train_draft  # noqa: E402


def refused(
    place: Path, words: str, capsys: pytest.CaptureFixture[str], *more: str, code: int = 2
) -> str:
    given = ["--target", str(shared_pair().target), "--capture", "1,2,3", "--draft-vocab", "160"]
    given += ["--out", str(place / "out"), "--work", str(place / "work"), *more]
    assert train_draft.main([*given, *words.split()]) == code
    said = capsys.readouterr().err
    assert said.startswith("train_draft: error: ")
    return said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--steps 0", "--steps 0. 1 or more."),
        ("--replies -1", "--replies -1. 0 or more."),
        ("--batch 0", "--batch 0."),
        ("--shard 0", "--shard 0."),
        ("--rows -2", "--rows -2."),
        ("--ttt-steps 0", "--ttt-steps 0."),
        ("--evaluate-requests 0", "--evaluate-requests 0."),
        ("--threads 100000", "--threads 100000. 1..1024."),
        ("--greedy-share 1.5", "--greedy-share 1.5. 0..1."),
        ("--greedy-share nan", "--greedy-share nan. 0..1."),
        ("--temperature 0", "--temperature 0.0. Over 0."),
        ("--muon-rate inf", "--muon-rate inf. Over 0."),
        ("--adam-rate nan", "--adam-rate nan. Over 0."),
        ("--seed -1", "--seed -1. 0 or more."),
        ("--from-layer -2", "--from-layer -2. -1 or more."),
        ("--from-layer 4", "--from-layer 4. -1..3."),
        ("--draft-vocab 0", "--draft-vocab 0. 1 or more."),
        ("--draft-vocab 5000", "draft vocabulary 5000 of 288"),
        ("--capture 1,9", "Physical indices in 1..4"),
        ("--for vllm", "depends on the version"),
        ("--for tgi==1", "is not a known code base"),
        ("--for sglang==0.5.23 --capture 1,2,4", "cannot be expressed for sglang"),
        ("--stage nope", "unknown stage 'nope'. Stages are texts, features"),
        ("--stage feature", "Did you mean 'features'?"),
        ("--stage draft,texts", "--stage draft,texts is not in the order"),
        ("--stage draft,draft", "is not in the order"),
        ("--stage texts --prompts templates:x", "names no number"),
    ],
)
def test_settings_are_held_against_each_other_before_anything_runs(
    tmp_path: Path, words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(tmp_path, words, capsys)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "work").glob("*"))


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        ("features", "texts.jsonl is not there. What stage texts leaves"),
        ("draft", "Run --stage texts first"),
        ("export", "draft.safetensors is not there. What stage draft leaves"),
        ("probe", "config.json is not there. What stage export leaves"),
        ("card", "measured.json is not there"),
    ],
)
def test_a_stage_without_the_one_before_it_says_which_to_run(
    tmp_path: Path, stage: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(tmp_path, f"--stage {stage}", capsys)


def test_what_stands_in_the_working_folder_is_not_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    texts = work / "texts.jsonl"
    texts.write_text("")
    assert "texts.jsonl is empty" in refused(tmp_path, "--stage features", capsys)
    texts.write_text('{"id": 1}\n')
    assert "holds a line that is no text" in refused(tmp_path, "--stage draft", capsys)
    texts.write_text('{"id": "a", "category": "", "prompt": [1], "reply": [2, 3]}\n')
    said = refused(tmp_path, "--stage draft", capsys)
    assert "features-1-2-3-0-1.safetensors is not there. What stage features leaves" in said
    (work / "features-1-2-3-0-1.safetensors").touch()
    save_file({"model/x": torch.ones(1)}, work / "draft-part.safetensors")
    said = refused(tmp_path, "--stage draft", capsys)
    assert "draft-part.safetensors is the checkpoint of a draft of other sizes" in said
    (work / "measured.json").write_text("{}")
    assert "says nothing of stage texts" in refused(tmp_path, "--stage card", capsys)


def test_a_working_folder_of_another_target_or_other_texts_is_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"id": "a", "category": "a", "turns": ["hello there"]}\n')
    first = ["--prompts", str(prompts), "--max-tokens", "4", "--stage", "texts"]
    given = ["--target", str(shared_pair().target), "--capture", "1,2,3", "--draft-vocab", "160"]
    given += ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert train_draft.main([*given, *first]) == 0
    texts = (tmp_path / "work" / "texts.jsonl").read_bytes()
    said = refused(tmp_path, "--stage features", capsys, *first[:4], "--seed", "5")
    assert "was made with --seed 20260, not 5. The same, since later stages read it." in said
    write_pair(tmp_path / "other", seed=4)
    other = ["--target", str(tmp_path / "other" / "target")]
    assert "with a target of sha256 " in refused(tmp_path, "", capsys, *first, *other)
    prompts.write_text('{"id": "a", "category": "a", "turns": ["good morning"]}\n')
    assert "was made with --prompts mine.jsonl (sha256 " in refused(tmp_path, "", capsys, *first)
    assert (tmp_path / "work" / "texts.jsonl").read_bytes() == texts
    (tmp_path / "work" / "made_from.json").write_text("[1]")
    assert "is not what a run writes" in refused(tmp_path, "", capsys, *first)


def test_foreign_files_in_the_output_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    assert "holds mine.txt" in refused(tmp_path, "", capsys)
    assert (tmp_path / "out" / "mine.txt").read_text() == "kept"
    (tmp_path / "file").touch()
    assert "is no folder" in refused(tmp_path, "", capsys, "--out", str(tmp_path / "file"))


def test_what_breaks_or_is_interrupted_ends_with_three(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(error: BaseException) -> int:
        def work() -> None:
            raise error

        return command.run("tool", work)

    assert broken(OSError(28, "No space left on device", "x.bin")) == 3
    assert broken(KeyboardInterrupt()) == 3
    assert broken(MemoryError()) == 3
    assert capsys.readouterr().err.splitlines() == [
        "tool: error: x.bin: No space left on device.",
        "tool: error: Interrupted.",
        "tool: error: The memory does not suffice.",
    ]
    assert command.run("tool", lambda: None) == 0
    with pytest.raises(ZeroDivisionError):  # a fault of ours keeps its traceback
        broken(ZeroDivisionError())

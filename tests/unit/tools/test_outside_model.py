"""benchmarks/outside_model.py: agreement on the shipped target, what a difference looks like, and
SmolLM2 itself where SPECBENCH_SMOLLM2 names its folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks import outside_model
from specbench.demo import TARGET
from specbench.request import Request

SMOLLM2 = os.environ.get(outside_model.FOLDER, "")


@pytest.mark.skipif(not SMOLLM2, reason=f"{outside_model.FOLDER} names no folder")
def test_smollm2_says_what_transformers_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert outside_model.main(["--prompts", "5", "--tokens", "64"]) == 0
    assert "torch: 5 of 5 equal" in capsys.readouterr().out


def test_the_shipped_target_says_what_transformers_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = outside_model.main(["--target", str(TARGET), "--prompts", "5", "--tokens", "12"])
    out = capsys.readouterr().out
    assert told == 0
    assert "prompts: 5 of 5 have the same tokens" in out
    assert "torch: 5 of 5 equal" in out


def test_an_answer_that_differs_is_named_and_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = outside_model.engine_answers

    def faulty(folder: Path, requests: Sequence[Request], kernels: str) -> list[outside_model.Ids]:
        first, *rest = honest(folder, requests, kernels)
        return [(*first[:3], first[3] + 1, *first[4:]), *rest]

    monkeypatch.setattr(outside_model, "engine_answers", faulty)
    assert outside_model.run(TARGET, "default", 2, 6) == 1
    out = capsys.readouterr().out
    assert "torch: 1 of 2 equal" in out
    assert "prose-001#0: token 3 is " in out


def test_no_folder_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(outside_model.FOLDER, raising=False)
    with pytest.raises(SystemExit):
        outside_model.main([])
    assert "SPECBENCH_SMOLLM2" in capsys.readouterr().err

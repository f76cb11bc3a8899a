"""A sweep over two ranks from the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from specbench import cli
from tests.tiny import shared_pair

GRID = ("--num-steps", "0,2", "--topk", "1", "--batch-size", "2", "--requests", "4")
SIZE = ("--blocks", "1", "--max-tokens", "6", "--seed", "1", "--dtype", "float32")


def models() -> tuple[str, ...]:
    pair = shared_pair()
    return ("--target", str(pair.target), "--draft", str(pair.draft))


def test_a_sweep_over_two_ranks_is_exact_and_says_what_it_ran_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = ["sweep", *models(), *GRID, *SIZE, "--tensor-parallel", "2", "--out", str(out)]
    assert cli.main(given) == 0
    run = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert run["asked"]["engine"]["tensor_parallel"] == 2
    device = run["provenance"]["device"]
    assert (device["tensor_parallel"], device["kernels"]) == ("2", "torch")
    with (out / "summary.csv").open(encoding="utf-8", newline="") as file:
        arms = {r["point_id"]: r for r in csv.DictReader(file) if r["category"] == "all"}
    assert set(arms) == {"base", "k2"}
    assert arms["k2"]["lossless"] == "exact"


def test_the_compiled_forward_is_refused_for_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "--tensor-parallel", "2", "--kernels", "native"]) == 2
    assert "kernels=native with tensor_parallel=2" in capsys.readouterr().err


def test_heads_that_do_not_divide_are_refused_with_both_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["sweep", *models(), "--tensor-parallel", "3", "--out", str(tmp_path / "run")]
    assert cli.main(given) == 2
    error = capsys.readouterr().err
    assert "tensor_parallel=3 does not divide the query heads 4 of the target (llama)" in error

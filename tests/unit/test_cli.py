"""The command line: exit codes, one clear error, help that names every flag."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from specbench import cli
from specbench.prompts.datasets import SCHEMES


@pytest.mark.parametrize("command", ["sweep", "serve", "report", "dashboards", "dashboards push"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command.split(), "--help"])
    assert stopped.value.code == 0
    assert f"specbench {command}" in capsys.readouterr().out


def test_the_help_of_workload_lists_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["sweep", "--help"])
    said = "".join(capsys.readouterr().out.split())
    assert f"(kinds:{','.join(SCHEMES)})" in said


def test_a_model_that_is_not_there_is_refused_before_the_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", "--target", "org/a-model", "--num-steps", "0"]) == 2
    assert cli.main(["sweep", "--server", "localhost:3"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "hf download org/a-model --local-dir DIR" in " ".join(said.err.split())
    assert "'localhost:3' is not the address of a server" in said.err
    assert not list(tmp_path.iterdir())


def test_an_unknown_flag_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["sweep", "--num-step", "3"])
    assert stopped.value.code == 2
    assert "--num-step" in capsys.readouterr().err


def test_an_error_is_one_line_on_stderr_and_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["sweep", "--explain", "3,1,16"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("specbench: error: num_steps=3 topk=1 drafts a chain of 3")
    assert seen.err.count("\n") == 1


def test_brackets_in_an_error_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["sweep", "--num-steps", "[bold]1"]) == 2
    assert "'[bold]1'" in capsys.readouterr().err


def test_explain_draws_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "--explain", "3,4,16"]) == 0
    assert "the 15 most probable of 36" in capsys.readouterr().out


def _options(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of all its subcommands; argparse has no public way."""
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found = found.union(*map(_options, action.choices.values()))
    return found


def test_every_flag_named_in_the_docs_exists() -> None:
    root = Path(__file__).parents[2]
    known = _options(cli.build_parser())
    docs = [root / "README.md", *(root / "docs").glob("*.md")]
    lines = [
        line
        for doc in docs
        for line in doc.read_text(encoding="utf-8").splitlines()
        if line.strip().startswith("specbench ")
    ]
    assert lines
    for line in lines:
        assert set(re.findall(r"(?<=\s)--[a-z-]+", line)) <= known, line


@pytest.mark.parametrize("words", [("--explain", ""), ("--out", "")])
def test_an_empty_value_is_not_a_flag_left_out(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sweep", *words]) == 2
    assert "specbench: error:" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["a\\[/x] b", "b\udcff", "c" * 4000])
def test_any_path_can_be_quoted_in_an_error(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", path]) == 2
    assert path[:8].encode(errors="backslashreplace").decode() in capsys.readouterr().err
    assert cli.main(["sweep", "--target", path, "--draft", path, "--out", ""]) == 2

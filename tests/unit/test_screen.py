"""Piped output keeps every word whole; a terminal's width is respected."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from rich.table import Table

from specbench.screen import NO_LIMIT, new_console

CODES = tuple(f"a_code_of_many_letters_{place}" for place in range(6))


def table() -> Table:
    table = Table(box=None, pad_edge=False)
    for place in range(len(CODES)):
        table.add_column(f"c{place}", overflow="fold")
    table.add_row(*CODES)
    return table


def test_in_a_pipe_no_word_is_broken_and_no_line_is_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    console = new_console()
    console.print(table())
    console.print("word " * 40)
    head, row, text = capsys.readouterr().out.splitlines()
    assert row.split() == list(CODES)
    assert len(row) < 200
    assert text.count("word") == 40
    assert len(head) == len(row)


@pytest.mark.parametrize("stderr", [False, True])
def test_columns_set_the_width(monkeypatch: pytest.MonkeyPatch, stderr: bool) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert new_console(stderr=stderr).width == 60
    monkeypatch.delenv("COLUMNS")
    assert new_console(stderr=stderr).width == NO_LIMIT
    assert new_console(stderr=stderr).stderr is stderr


def test_a_terminal_keeps_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdout", stream)
    assert new_console().width < 1000


@pytest.mark.parametrize("stderr", [False, True])
def test_a_reader_that_leaves_ends_neither_the_work_nor_the_exit_code(stderr: bool) -> None:
    code = (
        "import sys; from specbench.screen import new_console; "
        f"console = new_console(stderr={stderr}); "
        "[console.print('line') for _ in range(3)]; sys.exit(5)"
    )
    reading, writing = os.pipe()
    os.close(reading)
    out, err = (subprocess.PIPE, writing) if stderr else (writing, subprocess.PIPE)
    try:
        ended = subprocess.run([sys.executable, "-c", code], check=False, stdout=out, stderr=err)
    finally:
        os.close(writing)
    assert ended.returncode == 5
    assert not (ended.stdout if stderr else ended.stderr)

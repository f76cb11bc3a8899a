"""The console that every command prints to: as wide as a terminal is, and never narrower elsewhere.

In a pipe or a file rich would assume 80 columns and break codes and paths in the middle, so that
nobody finds them again with grep. There lines are as long as they are.
"""

from __future__ import annotations

import os
import sys

from rich.console import Console

NO_LIMIT = 10_000  # columns; longer than any row of a table


class _Screen(Console):
    """A console that goes on in silence when whoever read its pipe has left.

    rich would end the program with exit code 1, which here says that a gate failed; and a sweep
    piped to ``head`` would stop in the middle.
    """

    def on_broken_pipe(self) -> None:
        self.quiet = True
        stream = sys.stderr if self.stderr else sys.stdout
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def new_console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """A console on stdout or stderr; ``COLUMNS`` in the environment sets its width anywhere.

    ``soft_wrap`` leaves the wrapping of long lines to the terminal, for JSON and paths.
    """
    console = _Screen(stderr=stderr, highlight=False, soft_wrap=soft_wrap)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = NO_LIMIT
    return console

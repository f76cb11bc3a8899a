"""A text file that grows by whole lines; what a killed writer left of a line is cut off."""

from __future__ import annotations

import os
from pathlib import Path

from specbench.errors import OutputError


def append_lines(path: Path, text: str) -> None:
    """Add ``text``, whole lines, to the end of ``path`` and force it to disk.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        with path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read(1) not in (b"", b"\n"):
                file.seek(0)
                file.truncate(_whole(file.read()))
            file.write(text.encode())  # in append mode: always at the end
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}.", todo="Make room."
        ) from error


def has_a_line(path: Path) -> bool:
    """True when the first line of ``path`` is whole; False without a file.

    Raises:
        OutputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.readline().endswith(b"\n")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error}.") from error


def whole_lines(path: Path) -> str:
    """The text of ``path`` up to its last whole line; empty when there is no file.

    Raises:
        OutputError: it cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
        return data[: _whole(data)].decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise OutputError(f"{path} cannot be read: {error}.") from error


def _whole(data: bytes) -> int:
    return data.rfind(b"\n") + 1

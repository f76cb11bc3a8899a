"""Structured log lines: one JSON object a line. No prompt and no output text is ever logged."""

from __future__ import annotations

import contextlib
import json
import logging
from datetime import UTC, datetime
from typing import Any, TextIO

from specbench.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")


class JsonLog:
    """Writes lines of at least ``level`` to ``stream``, each flushed at once.

    Every line has ``at`` (UTC, ISO 8601), ``level`` and ``event``, then the facts of the event.

    Raises:
        ConfigError: the level is unknown.
    """

    def __init__(self, stream: TextIO, level: str = "info") -> None:
        if level not in LEVELS:
            raise ConfigError(
                f"log_level={level!r} is unknown.", expected=f"One of {', '.join(LEVELS)}."
            )
        self._stream = stream
        self._least = LEVELS.index(level)

    def info(self, event: str, **facts: Any) -> None:
        """Something that is meant to happen."""
        self.write("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Something that its cause should look at."""
        self.write("warning", event, facts)

    def error(self, event: str, **facts: Any) -> None:
        """Something that broke."""
        self.write("error", event, facts)

    def write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        """One line, unless its level is under the least one that is wanted."""
        if LEVELS.index(level) < self._least:
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps(
            {"at": at, "level": level, "event": event, **facts}, ensure_ascii=False, default=str
        )
        # A reader of the log that is gone (a closed pipe) must not stop the service.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()


def take_library_records(log: JsonLog) -> None:
    """From now on what libraries log in this process goes to ``log``."""
    logging.getLogger().addHandler(LibraryRecords(log))


class LibraryRecords(logging.Handler):
    """Brings what libraries log into the same shape, so that every line is JSON."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One line per record, with the traceback as text."""
        level = "error" if record.levelno >= logging.ERROR else "warning"
        facts: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._log.write(level, "library", facts)

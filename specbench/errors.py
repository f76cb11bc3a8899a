"""The exception tree: one base, one exit code per kind, one shape of message.

::

    SpecbenchError            exit 3   the base; never raised itself
    |- UsageError             exit 2   the caller asked for something impossible
    |  |- ConfigError                  a setting, flag or config file
    |  |- WorkloadError                a prompt set: missing, empty, malformed
    |  |- CheckpointError              a model or draft folder that cannot be read as claimed
    |  |  `- UnsupportedError          it may be sound: what it asks for is not built here
    |  `- OutputError                  a run directory that cannot be written or read
    `- RunError               exit 3   the run broke; what was measured is kept
       |- BackendError                 a server or engine refused or failed a request
       |  `- RequestError              the request itself cannot be run: too long, unknown ids
       |- UnreachableError             nothing answers at the address
       `- EngineError                  an invariant of the engine does not hold

Every message says what happened, what was expected and what to do next, in that order.
"""

from __future__ import annotations

from typing import ClassVar


class SpecbenchError(Exception):
    """Base of every error that specbench raises on purpose.

    Args:
        what: what happened, as one sentence.
        expected: what was expected instead; may be empty when the first sentence says it.
        todo: the next step for the reader; may be empty when there is only one.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, what: str, *, expected: str = "", todo: str = "") -> None:
        self.what = what
        self.expected = expected
        self.todo = todo
        super().__init__(" ".join(part for part in (what, expected, todo) if part))


class UsageError(SpecbenchError):
    """The caller asked for something that cannot be done as asked."""

    exit_code = 2


class ConfigError(UsageError):
    """A flag, a setting or a config file is wrong or contradicts another."""


class WorkloadError(UsageError):
    """A prompt set is missing, empty or malformed."""


class CheckpointError(UsageError):
    """A model or draft folder cannot be read as what it claims to be."""


class UnsupportedError(CheckpointError):
    """A folder asks for what is not built, or not known, here: it may be sound elsewhere."""


class OutputError(UsageError):
    """A run directory cannot be written, or does not hold what it should."""


class RunError(SpecbenchError):
    """The run broke after it had started; what was measured is kept."""


class BackendError(RunError):
    """A server or the engine refused or failed one request."""


class RequestError(BackendError):
    """One request cannot be run as asked, by this engine or by any try: the asker's fault."""


class UnreachableError(RunError):
    """Nothing answers at the address that was given."""


class EngineError(RunError):
    """An invariant of the in-process engine does not hold."""

"""What the engine that is to serve leaves unread of the draft (``--engine``, engine-spec 1.4, 1.6).

``convert`` refuses to write a draft for such an engine; here the same rules judge one as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from specbench.checkpoint.conventions import find
from specbench.checkpoint.layouts import LAYOUTS, check_engine
from specbench.doctor.checks_subject import Subject, read_strictly
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.errors import CheckpointError

_NEWEST = "==99999"  # an engine without a version is taken as one that reads all that any does


def check_reads(subject: Subject) -> Iterator[Finding]:
    """Norms, biases, layers and formats that the named engine skips; nothing without one, and for
    files that the strict reader refuses, which other checks name.

    Raises:
        ConfigError: the engine or its version is not known.
    """
    if not subject.engine:
        return
    rule = find(subject.engine, subject.arch)
    try:
        spec = read_strictly(subject)
    except CheckpointError:
        return
    engine = subject.engine if "==" in subject.engine else f"{subject.engine}{_NEWEST}"
    try:
        check_engine(spec, rule, engine, LAYOUTS[spec.file_format])
    except CheckpointError as error:
        yield Finding(
            code="norms.engine",
            severity=Severity.ERROR,
            title=error.what.replace(_NEWEST, "").rstrip("."),
            evidence=(Fact(text=f"{spec.file_format} file", where=str(subject.draft.path)),),
            remedy=error.todo,
            score=0.85,
        )

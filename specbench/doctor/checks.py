"""All static checks: no forward pass, no torch (engine-spec 1, 3.2 to 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from specbench.doctor.checks_dtype import check_quantised, check_rounded
from specbench.doctor.checks_ids import check_engines, check_ids
from specbench.doctor.checks_reads import check_reads
from specbench.doctor.checks_rope import check_rope
from specbench.doctor.checks_shapes import (
    check_fc,
    check_kind,
    check_norms,
    check_sharing,
    check_tensors,
)
from specbench.doctor.checks_subject import Subject, check_files, read_strictly
from specbench.doctor.checks_values import check_values
from specbench.doctor.checks_vocab import check_map, check_sizes, check_special, check_text
from specbench.doctor.findings import Fact, Finding, Severity, has_error
from specbench.errors import CheckpointError, UnsupportedError

Check = Callable[[Subject], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    check_files,
    check_kind,
    check_ids,
    check_engines,
    check_fc,
    check_sizes,
    check_map,
    check_special,
    check_text,
    check_norms,
    check_reads,
    check_tensors,
    check_sharing,
    check_values,
    check_quantised,
    check_rounded,
    check_rope,
)


def static_findings(subject: Subject) -> tuple[Finding, ...]:
    """Every check, and what the strict reader refuses when none of them is an error."""
    found = [finding for check in CHECKS for finding in check(subject)]
    if not has_error(found) and not subject.target.unread and not subject.draft.unread:
        found += _refused(subject)
    return tuple(found)


def _refused(subject: Subject) -> list[Finding]:
    try:
        read_strictly(subject)
    except CheckpointError as error:
        lacks = isinstance(error, UnsupportedError)
        title = error.what.rstrip(".")
        return [
            Finding(
                code="files.unsupported" if lacks else "files.refused",
                severity=Severity.WARNING if lacks else Severity.ERROR,
                title=f"Not run here, and not shown to be wrong: {title}" if lacks else title,
                evidence=(Fact(text=error.expected or error.what, where=str(subject.draft.path)),),
                remedy=error.todo or error.expected,
                score=0.1 if lacks else 0.7,
            )
        ]
    return []

"""Findings for people: one line each, one explained, and a Markdown section."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.doctor.catalogue import check_code, kind_of
from specbench.doctor.failures import PAGE, codes_of, failures, told
from specbench.doctor.findings import Finding, Severity

MARKS = {Severity.ERROR: "error", Severity.WARNING: "warn", Severity.NOTE: "note"}


def verdict_line(findings: Sequence[Finding]) -> str:
    """One sentence over all: what to look at first.

    >>> verdict_line([])
    'Nothing found.'
    """
    if not findings:
        return "Nothing found."
    counts = [
        f"{count} {name}{'s' if count > 1 else ''}"
        for severity, name in ((s, s.value) for s in reversed(Severity))
        if (count := sum(f.severity is severity for f in findings))
    ]
    first = findings[0]
    told = ", ".join(counts)
    if first.severity is Severity.NOTE:
        return f"{told}; no fault shown."
    return f"{told}; look first at {first.code}."


def meaning(code: str) -> str:
    """What a code means and which failures it stands for, with nothing looked at.

    A failure's number, such as F4, tells the failure and the codes that stand for it.

    Raises:
        ConfigError: no such code.
    """
    if code in failures():
        parts = _failure(code)
    else:
        kind = check_code(code)
        parts = [code, kind.why, *(f"- {line}" for line in told(kind.failures))]
    parts += [
        "",
        "Nothing was looked at. For the numbers of a case give what to look at beside it: --target "
        "and --draft, --run, --metrics, --per-position or --launch; for the demo pair --static, or "
        "--parity all, which runs it.",
    ]
    return "\n".join(parts)


def explain(findings: Sequence[Finding], code: str) -> str:
    """Reasoning and numbers of every finding of ``code``, or what the code means.

    A failure's number, such as F4, gives the findings whose codes stand for it.

    Raises:
        ConfigError: no such code.
    """
    if code in failures():
        parts = _failure(code)
        chosen = [f for f in findings if code in kind_of(f.code).failures]
        if not chosen:
            parts.append("None of these was found here.")
        for finding in chosen:
            first, *more = _lines(finding)
            parts += ["", f"{finding.code} {first}", *more]
        return "\n".join(parts)
    kind = check_code(code)
    chosen = [f for f in findings if f.code == code or f"{f.code.partition('.')[0]}.*" == code]
    named = f" ({', '.join(kind.failures)}; {PAGE} has each)" if kind.failures else ""
    parts = [f"{code}{named}", kind.why]
    if not chosen:
        parts.append("It was not found here.")
    for finding in chosen:
        parts += ["", *_lines(finding)]
    return "\n".join(parts)


def _failure(number: str) -> list[str]:
    """What is wrong, how it shows, and the codes of findings that stand for it."""
    codes = codes_of(number)
    return [*told([number]), f"Codes that stand for it, the narrowest first: {', '.join(codes)}."]


def _lines(finding: Finding) -> list[str]:
    lines = [f"{MARKS[finding.severity]}: {finding.title}"]
    if finding.claims:
        lines.append(f"The files claim {finding.claims}.")
    lines += [f"- {fact.where}: {fact.text}" if fact.where else f"- {fact.text}"
              for fact in finding.evidence]  # fmt: skip
    if finding.figures:
        shown = (f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                 for name, value in finding.figures.items())  # fmt: skip
        lines.append(f"Figures: {', '.join(shown)}.")
    if finding.remedy:
        lines.append(f"To do: {finding.remedy}")
    return lines


def markdown(findings: Sequence[Finding], confirmed: Sequence[str] = ()) -> str:
    """A section for a report: verdict, a table, and the evidence of all but notes."""
    parts = ["## Wiring doctor", "", verdict_line(findings), ""]
    parts += [f"- {_cell(line)}" for line in confirmed]
    if confirmed:
        parts.append("")
    if findings:
        parts += ["| severity | code | finding | to do |", "|---|---|---|---|"]
        parts += [
            f"| {f.severity} | `{f.code}` | {_cell(f.title)} | {_cell(f.remedy)} |"
            for f in findings
        ]
        parts.append("")
    for finding in findings:
        if finding.severity is Severity.NOTE:
            continue
        failures = ", ".join(kind_of(finding.code).failures)
        parts += [f"### {finding.code}{f' ({failures}: {PAGE})' if failures else ''}", ""]
        parts += [kind_of(finding.code).why, ""]
        parts += [
            f"- {_cell(fact.where)}: {_cell(fact.text)}" if fact.where else f"- {_cell(fact.text)}"
            for fact in finding.evidence
        ]
        parts.append("")
    return "\n".join(parts)


def _cell(text: str) -> str:
    """Text from a file cannot break the table or bring markup in."""
    flat = " ".join(text.split())
    for mark in ("\\", "|", "<", "`"):
        flat = flat.replace(mark, f"\\{mark}" if mark != "<" else "&lt;")
    return flat

"""The silent failures that findings stand for by number, and the page that lists them.

The facts are those of engine-spec 10.2. ``docs/failures.md`` is written from here and from the
catalogue of codes, and a test holds it against both.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench.doctor.catalogue import check_code, kinds
from specbench.errors import ConfigError

PAGE = "docs/failures.md"
_FILE = Path(__file__).parent / "failures.toml"
_HEAD = """\
# Silent failures
Made by `python -m tools.make_failures_doc` from `failures.toml` and `catalogue.toml` in
`specbench/doctor`.

What goes wrong between a target and its draft without a crash, and mostly without a change of the
output: only acceptance tells. The doctor, its zoo and the engine's messages name them by these
numbers. *Shows* names the shapes of [doctor.md](doctor.md), section 3 (*none*: acceptance looks
right). *Codes* are those of findings that stand for it, the narrowest first; `specbench doctor
--explain CODE` says more, and one that ends in `.*` stands for a group. Where the codes are shapes
alone (`shape.*`, `gap.split`), the doctor sees that something is wrong and cannot tell this cause
from its neighbours.

| | what is wrong | shows | codes |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """``number`` such as F8, what is ``wrong``, and how it ``shows`` in what was counted."""

    number: str
    wrong: str
    shows: str


@functools.cache
def failures() -> Mapping[str, Failure]:
    """All of them by number, in order."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {number: Failure(number=number, **row) for number, row in table.items()}


def told(numbers: Iterable[str]) -> tuple[str, ...]:
    """A line for each.

    >>> told(["F12"])[0][:24]
    'F12: d2t is missing or a'
    """
    chosen = (failures()[number] for number in numbers)
    return tuple(f"{f.number}: {f.wrong} Shape: {f.shows}." for f in chosen)


def check_explained(asked: str) -> None:
    """Whether a code or a failure's number is known, for one that a person typed.

    Raises:
        ConfigError: with the nearest codes, or the numbers that there are.
    """
    if asked in failures():
        return
    if re.fullmatch(r"[Ff]\d+", asked):
        first, *_, last = failures()
        raise ConfigError(
            f"--explain {asked!r} is no failure.",
            expected=f"{first} to {last}, as {PAGE} has them, or a code.",
        )
    check_code(asked)


def codes_of(number: str) -> tuple[str, ...]:
    """The codes that stand for a failure: files and launch first, then the probe, then shapes.

    Within each kind the code that stands for the fewest failures comes first.
    """
    found = [kind for kind in kinds().values() if number in kind.failures]
    found.sort(key=lambda kind: (_breadth(kind.code), len(kind.failures)))
    return tuple(kind.code for kind in found)


def _breadth(code: str) -> int:
    """0 for a check, 1 for a group that a probe fills in, 2 for what has many causes."""
    if code.startswith(("shape.", "speed.", "gap.")):
        return 2
    return int(code.endswith("*"))


def document() -> str:
    """The text of ``docs/failures.md``."""
    rows = (
        f"| {f.number} | {f.wrong} | {f.shows} | "
        f"{', '.join(f'`{code}`' for code in codes_of(f.number))} |\n"
        for f in failures().values()
    )
    return _HEAD + "".join(rows)

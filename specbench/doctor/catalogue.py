"""Every code of a finding, registered once in ``catalogue.toml``.

``why`` is what ``specbench doctor --explain CODE`` says before the numbers of the case.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specbench.errors import ConfigError

_FILE = Path(__file__).parent / "catalogue.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A registered code, the failures that it stands for (``failures.toml``), and why it matters.

    A code that ends in ``.*`` stands for all that begin so. ``follows`` are codes, in the same
    form, of which this one is a consequence: where both are found, the other is the cause.
    """

    code: str
    failures: tuple[str, ...]
    why: str
    follows: tuple[str, ...] = ()

    def comes_of(self, other: str) -> bool:
        """Whether ``other``, where it is found, explains this.

        >>> kind_of("shape.one").comes_of("wiring.slots"), kind_of("map.direct").comes_of("x.y")
        (True, False)
        """
        return any(fnmatch.fnmatchcase(other, pattern) for pattern in self.follows)


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """All codes, in the order of the file."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {
        code: Kind(
            code=code,
            failures=tuple(row["failures"]),
            why=" ".join(row["why"].split()),
            follows=tuple(row.get("follows", ())),
        )
        for code, row in table.items()
    }


def kind_of(code: str) -> Kind:
    """The entry of a code.

    >>> kind_of("wiring.slots").code, kind_of("fc.width").failures
    ('wiring.*', ('F6', 'F7', 'F37'))

    Raises:
        KeyError: not registered.
    """
    found = kinds().get(code) or kinds().get(f"{code.partition('.')[0]}.*")
    if found is None:
        raise KeyError(code)
    return found


def check_code(code: str) -> Kind:
    """As ``kind_of``, for a code that a person typed.

    Raises:
        ConfigError: with the nearest codes.
    """
    try:
        return kind_of(code)
    except KeyError:
        near = difflib.get_close_matches(code, kinds(), n=3, cutoff=0.4) or list(kinds())[:8]
        raise ConfigError(
            f"--explain {code!r} is not a code.", expected=f"Such as {', '.join(near)}."
        ) from None

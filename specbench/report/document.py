"""A report as plain blocks, so that Markdown and HTML say the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A paragraph, in bold if ``strong``."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list; each item has a label and a sentence."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table. The columns named in ``words`` are set to the left, the others hold numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]

    @property
    def left(self) -> tuple[bool, ...]:
        """For each column, whether it holds words."""
        return tuple(column in self.words for column in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Lines to be copied."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image file beside the report."""

    file: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Something to open on demand."""

    title: str
    inside: Table


Block = Heading | Text | Items | Table | Code | Picture | Folded

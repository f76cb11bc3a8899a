"""``report.md``: the report as GitHub-flavoured Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specbench.report.document import Block, Code, Folded, Heading, Items, Picture, Table, Text

BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


def markdown(blocks: Sequence[Block]) -> str:
    """The blocks as one Markdown text, ending in a newline."""
    return "\n\n".join(_block(block) for block in blocks) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_plain(block.text)}"
        case Text():
            return f"**{_plain(block.text)}**" if block.strong else _plain(block.text)
        case Items():
            return "\n".join(f"- **{_plain(a)}**: {_plain(b)}" for a, b in block.items)
        case Code():
            fence = max(["``", *re.findall("`+", block.text)], key=len) + "`"
            return f"{fence}sh\n{block.text}\n{fence}"
        case Picture():
            return f"![{block.caption}]({block.file})"
        case Folded():
            table = _table(block.inside)
            return f"<details><summary>{_plain(block.title)}</summary>\n\n{table}\n\n</details>"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    rule = [":--" if left else "--:" for left in table.left]
    lines = [table.columns, rule, *table.rows]
    return "\n".join("| " + " | ".join(_escape(cell) for cell in line) + " |" for line in lines)


def _escape(cell: str) -> str:
    return _plain(cell).replace("|", "\\|")


def _plain(text: str) -> str:
    """One line without markup: what a server or a workload says opens no tag, link or emphasis.

    >>> _plain("a <b>\\n*c* [d](e)")
    'a &lt;b> \\\\*c\\\\* [d]\\\\(e)'
    """
    line = BREAKS.sub(" ", text).replace("<", "&lt;")
    return line.replace("*", "\\*").replace("](", "]\\(")

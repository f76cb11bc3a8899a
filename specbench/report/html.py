"""``report.html``: the same report as one self-contained page; plots are embedded."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from specbench.report.document import Block, Code, Folded, Heading, Items, Picture, Table, Text
from specbench.report.page import explorer, head


def html(
    blocks: Sequence[Block], pictures: Mapping[str, bytes], data: Mapping[str, Any] | None = None
) -> str:
    """The blocks as one page.

    Args:
        blocks: of the report; the first heading is the page's title.
        pictures: PNG bytes by file name; a picture without bytes is left out.
        data: what the interactive part draws from (``page.page_data``); it stands before the
            second heading. None leaves it out.
    """
    title = next((block.text for block in blocks if isinstance(block, Heading)), "report")
    shown = [_block(block, pictures) for block in blocks]
    if data is not None:
        headings = [i for i, block in enumerate(blocks) if isinstance(block, Heading)]
        shown.insert(headings[1] if len(headings) > 1 else len(shown), explorer(data))
    body = "\n".join(shown)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head(title)}\n</head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _block(block: Block, pictures: Mapping[str, bytes]) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
        case Text():
            kind = ' class="strong"' if block.strong else ""
            return f"<p{kind}>{escape(block.text)}</p>"
        case Items():
            items = (f"<li><b>{escape(a)}</b>: {escape(b)}</li>" for a, b in block.items)
            return "<ul>\n" + "\n".join(items) + "\n</ul>"
        case Code():
            return f"<pre>{escape(block.text)}</pre>"
        case Picture():
            return _picture(block, pictures)
        case Folded():
            return (
                f"<details><summary>{escape(block.title)}</summary>\n"
                f"{_table(block.inside)}\n</details>"
            )
        case Table():
            return _table(block)


def _picture(block: Picture, pictures: Mapping[str, bytes]) -> str:
    if block.file not in pictures:
        return ""
    data = base64.b64encode(pictures[block.file]).decode("ascii")
    return f'<p><img alt="{escape(block.caption)}" src="data:image/png;base64,{data}"></p>'


def _table(table: Table) -> str:
    rows = "\n".join(_row(row, table.left, "td") for row in table.rows)
    return (
        f'<div class="scroll"><table>\n<thead>{_row(table.columns, table.left, "th")}</thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(cells: Sequence[str], left: Sequence[bool], tag: str) -> str:
    inner = "".join(
        f'<{tag} class="left">{escape(cell)}</{tag}>' if words else f"<{tag}>{escape(cell)}</{tag}>"
        for cell, words in zip(cells, left, strict=True)
    )
    return f"<tr>{inner}</tr>"

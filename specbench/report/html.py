"""``report.html``: the same report as one self-contained page; plots are embedded."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from specbench.report.document import Block, Code, Folded, Heading, Items, Picture, Table, Text

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2rem } h3 { font-size: 1rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #d5d9de; text-align: right;
  vertical-align: top }
th { border-bottom: 2px solid #8b949e } .left { text-align: left }
pre { background: #f3f4f6; padding: 0.8rem; overflow-x: auto } img { max-width: 100% }
.strong { font-weight: 600; font-size: 1.1rem }
"""


def html(blocks: Sequence[Block], pictures: Mapping[str, bytes]) -> str:
    """The blocks as one page.

    Args:
        blocks: of the report; the first heading is the page's title.
        pictures: PNG bytes by file name; a picture without bytes is left out.
    """
    title = next((block.text for block in blocks if isinstance(block, Heading)), "report")
    body = "\n".join(_block(block, pictures) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
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

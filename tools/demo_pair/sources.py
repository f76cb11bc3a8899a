"""Real documents: Austen, the SQLite manual, the Python manual and the Python library.

Whole documents (books, pages, modules) are held out by name or by hash. The
text comes from Debian packages: r-cran-janeaustenr, sqlite3-doc,
python3.11-doc and the installed standard library.
"""

from __future__ import annotations

import ast
import hashlib
import html
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

AUSTEN = Path("/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
SQLITE = Path("/usr/share/doc/sqlite3")
MANUAL = Path("/usr/share/doc/python3.11/html/_sources")
LIBRARY = Path("/usr/lib/python3.11")
BOOK_MARKS = {
    "Emma": "Emma Woodhouse, handsome",
    "Mansfield Park": "Miss Maria Ward",
    "Northanger Abbey": "Catherine Morland",
    "Persuasion": "Kellynch Hall",
    "Pride and Prejudice": "truth universally acknowledged",
    "Sense and Sensibility": "family of Dashwood",
}
HELD_OUT_BOOKS = frozenset({"Persuasion"})


@dataclass(frozen=True)
class Document:
    """One real document, with its licence and the kind of text it holds."""

    kind: str
    title: str
    licence: str
    text: str

    @property
    def held_out(self) -> bool:
        """Books by name, others one in twelve by hash of the title."""
        if self.kind == "novel":
            return self.title in HELD_OUT_BOOKS
        return hashlib.sha256(self.title.encode()).digest()[0] % 12 == 0


def available() -> bool:
    """Whether every Debian package is there."""
    return all(path.exists() for path in (AUSTEN, SQLITE, MANUAL, LIBRARY))


def _strings(block: bytes) -> list[str]:
    """The character vector in one serialised R object (XDR), without R."""
    found, start = [], 0
    for match in re.finditer(rb"\x00\x00\x00\x10(....)\x00[\x00-\x04]\x00\x09", block, re.DOTALL):
        count = int.from_bytes(match.group(1), "big")
        if count < 1000:
            continue
        start = match.end(1)
        for _ in range(count):
            size = int.from_bytes(block[start + 4 : start + 8], "big", signed=True)
            found.append(block[start + 8 : start + 8 + max(size, 0)].decode("utf-8", "replace"))
            start += 8 + max(size, 0)
        break
    return found


def novels() -> Iterator[Document]:
    """Austen's six novels: blocks of [4-byte length][zlib stream], or xz after a type byte."""
    data, offset = AUSTEN.read_bytes(), 0
    while offset + 4 < len(data):
        stream = zlib.decompressobj()
        block = stream.decompress(data[offset + 4 :])
        offset = len(data) - len(stream.unused_data)
        text = "\n".join(_strings(block))
        for title, mark in BOOK_MARKS.items():
            if mark in text[:6000]:
                yield Document("novel", title, "public domain", text)


def _page_text(page: str) -> str:
    page = re.sub(r"(?is)<(script|style|pre|table|svg)\b.*?</\1>", " ", page)
    blocks = re.findall(
        r"(?is)<p\b[^>]*>(.*?)(?=<p\b|</p>|<h\d|<ul|<ol|<dl|<div|<blockquote)", page
    )
    return "\n\n".join(html.unescape(re.sub(r"<[^>]+>", "", block)) for block in blocks)


def manuals() -> Iterator[Document]:
    """SQLite pages and the sources of the Python manual."""
    for path in sorted(SQLITE.rglob("*.html")):
        if path.stat().st_size > 4000:
            text = _page_text(path.read_text("utf-8", "replace"))
            yield Document("manual", f"SQLite: {path.stem}", "public domain", text)
    for folder in ("library", "tutorial", "howto", "reference", "faq"):
        for path in sorted((MANUAL / folder).rglob("*.rst.txt")):
            raw = path.read_text("utf-8", "replace")
            name = f"Python {folder}: {path.name.removesuffix('.rst.txt')}"
            yield Document("manual", name, "PSF-2.0", _rst_text(raw))


def _rst_text(raw: str) -> str:
    raw = re.sub(r":[\w:]+:`[~!]?([^`<]*?)(?: *<[^`>]*>)?`", r"\1", raw)
    raw = raw.replace("``", "").replace("::", ":")
    kept = []
    for block in re.split(r"\n\s*\n", raw):
        if not block.lstrip().startswith(
            (".", ":", "*", "-", "+", "#", "=", ">", "|", "^")
        ) and not re.search(r"\n[=\-~^*]{4}", block):
            kept.append(block)
    return "\n\n".join(kept)


def modules() -> Iterator[Document]:
    """Modules of the standard library."""
    paths = [
        p
        for p in sorted(LIBRARY.rglob("*.py"))
        if not {"test", "idlelib", "lib2to3", "tests"} & set(p.parts)
    ]
    for path in paths:
        if "site-packages" not in path.parts and "dist-packages" not in path.parts:
            yield Document(
                "module",
                str(path.relative_to(LIBRARY)),
                "PSF-2.0",
                path.read_text("utf-8", "replace"),
            )


def paragraphs(text: str, low: int, high: int) -> list[str]:
    """Paragraphs of ``low`` to ``high`` characters, lines joined."""
    joined = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [
        p
        for p in joined
        if low <= len(p) <= high and p[0].isalnum() | (p[0] == '"') and p[-1] in '.!?"'
    ]


def split_passage(paragraph: str) -> tuple[str, str] | None:
    """Opening and rest, cut at a sentence end so that the rest holds 120 to 380 characters."""
    ends = [m.end() for m in re.finditer(r"[.!?]\"? ", paragraph)]
    good = [e for e in ends if e >= 60 and 120 <= len(paragraph) - e <= 380]
    return (paragraph[: good[0]].strip(), paragraph[good[0] :].strip()) if good else None


def functions(text: str) -> list[tuple[str, str]]:
    """(signature with docstring, body) of short documented functions."""
    found = []
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    lines = text.splitlines()
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.FunctionDef)
            or not ast.get_docstring(node)
            or len(node.body) < 2
        ):
            continue
        first, last = node.lineno - 1, node.body[0].end_lineno or 0
        pad = node.col_offset
        head = "\n".join(line[pad:] for line in lines[first:last])
        body = "\n".join(line[pad:] for line in lines[last : node.end_lineno])
        if len(head) <= 420 and 60 <= len(body) <= 380:
            found.append((head, body.strip("\n")))
    return found

# ruff: noqa: E501 (tables and requests stay on one line)
"""Conversations made from real documents: passages to continue and functions to complete."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tools.demo_pair import sources
from tools.demo_pair.example import Example, one, pick

NOVEL_ASKS = "Continue this passage from a novel by Jane Austen:|How does this passage from {title} go on?|Continue this passage from {title}:"
MANUAL_ASKS = "Continue this paragraph from a manual ({title}):|Please finish this paragraph from the manual page {title}:"
CODE_ASKS = "Complete this function from the Python library:|Write the body of this function ({title}):|Finish this Python function:"


def _novel(rng: random.Random, doc: sources.Document) -> Iterator[Example]:
    for paragraph in sources.paragraphs(doc.text, 220, 700):
        cut = sources.split_passage(paragraph)
        if cut:
            ask = pick(rng, NOVEL_ASKS).format(title=doc.title)
            yield one("prose", f"novel:{doc.title}", f"{ask}\n\n{cut[0]}", cut[1])


def _manual(rng: random.Random, doc: sources.Document) -> Iterator[Example]:
    for paragraph in sources.paragraphs(doc.text, 220, 700):
        cut = sources.split_passage(paragraph)
        if cut:
            ask = pick(rng, MANUAL_ASKS).format(title=doc.title)
            yield one("prose", f"manual:{doc.title}", f"{ask}\n\n{cut[0]}", cut[1])


def _module(rng: random.Random, doc: sources.Document) -> Iterator[Example]:
    for head, body in sources.functions(doc.text):
        ask = pick(rng, CODE_ASKS).format(title=doc.title)
        yield one(
            "code",
            f"module:{doc.title}",
            f"{ask}\n\n```python\n{head}\n```",
            f"```python\n{body}\n```",
        )


def from_documents(rng: random.Random, held_out: bool) -> dict[str, list[Example]]:
    """Examples by kind of document, from held-out documents or from the others."""
    makers = (
        ("novel", sources.novels, _novel),
        ("manual", sources.manuals, _manual),
        ("module", sources.modules, _module),
    )
    table: dict[str, list[Example]] = {}
    for kind, read, make in makers:
        found = [ex for doc in read() if doc.held_out == held_out for ex in make(rng, doc)]
        rng.shuffle(found)
        table[kind] = found
    return table

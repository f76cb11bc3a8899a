"""Training text: which templates and documents it holds, in what shares, and what not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from specbench.errors import ConfigError
from tools.demo_pair import arithmetic, codegen, dialogue, extraction, prose, sources
from tools.demo_pair.documents import from_documents
from tools.demo_pair.example import CATEGORIES, Example, Maker

GENERATORS: dict[str, ModuleType] = {
    "prose": prose,
    "code": codegen,
    "dialogue": dialogue,
    "arithmetic": arithmetic,
    "extraction": extraction,
}
# Share of the characters of the training text.
SHARES = {
    "prose": 0.27,
    "code": 0.13,
    "dialogue": 0.17,
    "arithmetic": 0.12,
    "extraction": 0.13,
    "novel": 0.08,
    "manual": 0.05,
    "module": 0.05,
}
DOCUMENT_CATEGORY = {"novel": "prose", "manual": "prose", "module": "code"}


@dataclass(frozen=True)
class Source:
    """Templates of one category, split into those trained on and those held out."""

    seen: dict[str, Maker]
    held_out: dict[str, Maker]


def templates(category: str) -> Source:
    """The templates of a category; held-out ones never enter training text."""
    module = GENERATORS[category]
    table: dict[str, Maker] = module.makers()
    held: frozenset[str] = module.HELD_OUT
    return Source(
        {n: m for n, m in table.items() if n not in held},
        {n: m for n, m in table.items() if n in held},
    )


def generated(category: str, rng: random.Random, held_out: bool = False) -> Iterator[Example]:
    """Endless examples, templates in turn in a shuffled order."""
    source = templates(category)
    table = source.held_out if held_out else source.seen
    names = sorted(table)
    while True:
        rng.shuffle(names)
        for name in names:
            yield table[name](rng)


def _take(stream: Iterator[Example], characters: int) -> list[Example]:
    taken, size = [], 0
    for example in stream:
        taken.append(example)
        size += len(example.render())
        if size >= characters:
            break
    return taken


def merged(
    examples: list[Example], rng: random.Random, share: float = 0.15, limit: int = 1600
) -> list[Example]:
    """Join some neighbours of one category into conversations of two to four tasks."""
    joined, at = [], 0
    while at < len(examples):
        group = (
            examples[at : at + rng.randint(2, 4)] if rng.random() < share else examples[at : at + 1]
        )
        while len(group) > 1 and sum(len(ex.render()) for ex in group) > limit:
            group = group[:-1]
        name = "+".join(ex.template for ex in group)
        turns = tuple(turn for ex in group for turn in ex.turns)
        joined.append(Example(group[0].category, name, turns, group[0].system))
        at += len(group)
    return joined


def training_examples(characters: int, seed: int, with_documents: bool = True) -> list[Example]:
    """The whole training text in random order; documents are left out for a smoke run."""
    examples: list[Example] = []
    total = sum(SHARES.values()) if with_documents else sum(SHARES[c] for c in CATEGORIES)
    for category in CATEGORIES:
        stream = generated(category, random.Random(f"{seed}-{category}"))
        taken = _take(stream, int(characters * SHARES[category] / total))
        examples += merged(taken, random.Random(f"{seed}-merge-{category}"))
    if with_documents:
        if not sources.available():
            raise ConfigError(
                "The documents are not there.",
                expected="r-cran-janeaustenr, sqlite3-doc and python3.11-doc, installed.",
                todo="Install them, or say --no-documents.",
            )
        for kind, found in from_documents(
            random.Random(f"{seed}-documents"), held_out=False
        ).items():
            examples += _take(iter(found), int(characters * SHARES[kind] / total))
    random.Random(f"{seed}-order").shuffle(examples)
    return examples


def validation_examples(
    count: int, seed: int, with_documents: bool = True
) -> dict[str, list[Example]]:
    """Held-out templates by category, and held-out documents by kind."""
    table = {}
    for category in CATEGORIES:
        stream = generated(category, random.Random(f"{seed}-validation-{category}"), held_out=True)
        table[category] = [next(stream) for _ in range(count)]
    if with_documents:
        for kind, found in from_documents(
            random.Random(f"{seed}-documents"), held_out=True
        ).items():
            table[kind] = found[:count]
    return table


def save(path: Path, examples: list[Example]) -> None:
    """One JSON line an example."""
    with path.open("w", encoding="utf-8") as file:
        for ex in examples:
            row = {
                "category": ex.category,
                "template": ex.template,
                "system": ex.system,
                "turns": ex.turns,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def load(path: Path) -> list[Example]:
    """Read what ``save`` wrote."""
    found = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            turns = tuple((str(u), str(a)) for u, a in row["turns"])
            found.append(Example(row["category"], row["template"], turns, row["system"]))
    return found

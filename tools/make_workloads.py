"""Make the shipped workloads: prompts that the demo pair's training did not see.

    python tools/make_workloads.py --out workloads
    python tools/make_workloads.py --out workloads --collect   # also choose the excerpts again
    python tools/make_workloads.py --documents workloads/documents.jsonl --out DIR --per-category 80

Prompts come from the templates that `tools/demo_pair` holds out of training, and from excerpts of
held-out documents, which are kept in `documents.jsonl` so that no other package is needed. The
result is the same byte for byte on every machine; `--collect` reads the Debian packages that
`tools/demo_pair/sources.py` names. `--per-category` makes a larger default workload, for narrower
intervals: kinds and templates in the same shares, named ``default-N``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from specbench.errors import ConfigError
from tools.command import run
from tools.demo_pair import sources
from tools.demo_pair.corpus import generated
from tools.demo_pair.documents import from_documents
from tools.demo_pair.example import CATEGORIES, Example

SEED = 7
PER_CATEGORY = 20
CONVERSATIONS = 4
MAX_TOKENS = 96
KINDS = {"prose": ("novel", "manual"), "code": ("module",)}
# Document prompts of each kind in the default workload.
FROM_DOCUMENTS = {"novel": 1, "manual": 2, "module": 2}
COLLECTED = 12
LICENCE = (
    "Apache-2.0 for prompts from templates; excerpts: public domain (Austen, SQLite) "
    "and PSF-2.0 (Python), as each line's source says"
)
COMMAND = "python tools/make_workloads.py --out workloads"

Row = dict[str, object]


def collect(path: Path) -> None:
    """Choose excerpts of held-out documents, one a document at most."""
    licences = {"novel": "public domain", "module": "PSF-2.0"}
    rows: list[Row] = []
    for kind, found in from_documents(random.Random(SEED), held_out=True).items():
        used: set[str] = set()
        for example in found:
            prompt, title = example.turns[0][0], example.template.split(":", 1)[1]
            if not 120 <= len(prompt) <= 420 or (kind != "novel" and title in used):
                continue
            used.add(title)
            default = "public domain" if title.startswith("SQLite") else "PSF-2.0"
            rows.append(
                {
                    "kind": kind,
                    "category": example.category,
                    "title": title,
                    "licence": licences.get(kind, default),
                    "prompt": prompt,
                }
            )
            if len([row for row in rows if row["kind"] == kind]) == COLLECTED:
                break
    _write_lines(path, rows)


def _write_lines(path: Path, rows: list[Row]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8", newline="\n")


def _row(number: int, example: Example, turns: Sequence[str], source: str) -> Row:
    row: Row = {"id": f"{example.category}-{number:03d}", "category": example.category}
    row["turns"] = list(turns)
    if example.system:
        row["system"] = example.system
    return row | {"source": source, "held_out": True}


def _documents(path: Path, category: str, times: int) -> list[tuple[Example, str]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = []
    for kind in KINDS.get(category, ()):
        for row in [row for row in rows if row["kind"] == kind][: times * FROM_DOCUMENTS[kind]]:
            example = Example(category, kind, ((row["prompt"], ""),))
            found.append((example, f"document: {row['title']} ({row['licence']})"))
    return found


def _fresh(category: str, name: str) -> Iterator[Example]:
    """Held-out examples whose first request was not yet given."""
    seen: set[str] = set()
    for example in generated(category, random.Random(f"{SEED}-{name}-{category}"), held_out=True):
        if example.turns[0][0] not in seen:
            seen.add(example.turns[0][0])
            yield example


def default_rows(documents: Path, per_category: int = PER_CATEGORY) -> list[Row]:
    """``per_category`` single requests a category, the categories in turn."""
    table: dict[str, list[Row]] = {}
    for category in CATEGORIES:
        chosen = _documents(documents, category, per_category // PER_CATEGORY)
        stream = _fresh(category, "default")
        while len(chosen) < per_category:
            example = next(stream)
            chosen.append((example, f"template: {example.template}"))
        random.Random(f"{SEED}-{category}").shuffle(chosen)
        table[category] = [
            _row(index, example, [example.turns[0][0]], source)
            for index, (example, source) in enumerate(chosen, 1)
        ]
    return [table[category][index] for index in range(per_category) for category in CATEGORIES]


def _conversation(category: str, number: int, stream: Iterator[Example]) -> Row:
    """Three or four turns: a held-out dialogue, or several held-out tasks in one conversation."""
    wanted = 3 + number % 2
    if category == "dialogue":
        example = next(ex for ex in stream if len(ex.turns) >= wanted)
        turns = [user for user, _ in example.turns]
        return _row(number, example, turns, f"template: {example.template}")
    group = [next(stream) for _ in range(wanted)]
    names = " + ".join(example.template for example in group)
    return _row(number, group[0], [ex.turns[0][0] for ex in group], f"template: {names}")


def multiturn_rows() -> list[Row]:
    """Four conversations a category, the categories in turn."""
    streams = {category: _fresh(category, "multiturn") for category in CATEGORIES}
    return [
        _conversation(category, number, streams[category])
        for number in range(1, CONVERSATIONS + 1)
        for category in CATEGORIES
    ]


def _describe(
    folder: Path, name: str, description: str, rows: list[Row], command: str = COMMAND
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "prompts.jsonl", rows)
    about = {
        "schema": 1,
        "name": name,
        "description": description,
        "licence": LICENCE,
        "categories": list(CATEGORIES),
        "prompts": len(rows),
        "sha256": hashlib.sha256((folder / "prompts.jsonl").read_bytes()).hexdigest(),
        "max_tokens": MAX_TOKENS,
        "source": command,
    }
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (folder / "workload.json").write_text(text, encoding="utf-8", newline="\n")


def make_default(out: Path, documents: Path, per_category: int = PER_CATEGORY) -> None:
    """Write the default workload, or a larger one in its shares.

    Raises:
        ConfigError: ``per_category`` is no multiple of the default's, or excerpts would run out.
    """
    times, rest = divmod(per_category, PER_CATEGORY)
    most = COLLECTED // max(FROM_DOCUMENTS.values())
    if rest or not 1 <= times <= most:
        raise ConfigError(
            f"--per-category {per_category} does not keep the shares of the default workload.",
            expected=f"A multiple of {PER_CATEGORY}, {most * PER_CATEGORY} at most.",
            todo=f"Say --per-category {2 * PER_CATEGORY}.",
        )
    name, command = "default", COMMAND
    if times > 1:
        name = f"default-{per_category * len(CATEGORIES)}"
        command += f" --per-category {per_category}"
    _describe(
        out / name,
        name,
        "Single requests in five categories, on templates and documents that the demo pair's "
        "training did not see",
        default_rows(documents, per_category),
        command,
    )


def make(out: Path, documents: Path) -> None:
    """Write both shipped workloads."""
    make_default(out, documents)
    _describe(
        out / "multiturn",
        "multiturn",
        "Conversations of three or four turns in the same five categories, on templates that "
        "the demo pair's training did not see",
        multiturn_rows(),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit code is as ``specbench`` has it."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parse.add_argument("--out", type=Path, default=Path("workloads"))
    parse.add_argument(
        "--documents", type=Path, help="excerpts to choose from (default: documents.jsonl in --out)"
    )
    parse.add_argument("--collect", action="store_true", help="choose the excerpts again")
    parse.add_argument(
        "--per-category",
        type=int,
        default=PER_CATEGORY,
        help="prompts a category; above 20, only a larger default workload is written",
    )
    args = parse.parse_args(argv)
    return run("make_workloads", lambda: _make(args))


def _make(args: argparse.Namespace) -> None:
    documents = args.documents or args.out / "documents.jsonl"
    if args.collect:
        if not sources.available():
            raise ConfigError(
                "--collect reads documents that are not there.",
                expected="r-cran-janeaustenr, sqlite3-doc and python3.11-doc, installed.",
                todo="Install them, or leave --collect out.",
            )
        documents.parent.mkdir(parents=True, exist_ok=True)
        collect(documents)
    if not documents.is_file():
        raise ConfigError(
            f"{documents} is not there.",
            expected="The excerpts that the repository holds in workloads/documents.jsonl.",
            todo="Give their path by --documents, or choose them anew by --collect.",
        )
    if args.per_category == PER_CATEGORY:
        make(args.out, documents)
    else:
        make_default(args.out, documents, args.per_category)


if __name__ == "__main__":
    sys.exit(main())

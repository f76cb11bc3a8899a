"""``specbench doctor ids``: what layer ids mean to each code base, and what to write for each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from specbench.checkpoint.conventions import (
    IdRow,
    architecture,
    find,
    parse_ids,
    table,
    to_physical,
)
from specbench.checkpoint.id_coverage import (
    SPECIAL,
    check_arch,
    gaps,
    newest,
    special_classes,
    unverified,
)
from specbench.errors import ConfigError
from specbench.screen import new_console


def add_parser(subparsers: Any) -> None:
    """Declare ``ids`` beside the doctor's other actions."""
    parser = subparsers.add_parser(
        "ids",
        help="what layer ids mean to each code base and version",
        description="The same numbers in a config name different layers in different code bases. "
        "Physical k is the residual stream that enters layer k; 0 is the embedding's output, n "
        "the last layer's.",
        allow_abbrev=False,
    )
    parser.add_argument("--ids", default="", metavar="X,X,...", help="ids as written in a config")
    parser.add_argument(
        "--layers", type=int, required=True, metavar="N", help="decoder layers of the target"
    )
    parser.add_argument(
        "--arch", default="", metavar="CLASS", help="target class, such as DeepseekV3ForCausalLM"
    )
    parser.add_argument(
        "--from",
        dest="source",
        default="",
        metavar="CODE[==VERSION]",
        help="who wrote --ids: adds what to write for every engine",
    )
    parser.add_argument(
        "--physical", default="", metavar="K,K,...", help="layers trained on, when known"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.set_defaults(run=_ids)


def id_rows(
    ids: Sequence[int], *, layers: int, arch: str = "", source: str = "", physical: str = ""
) -> list[IdRow]:
    """The rows of ``conventions.table``; the layers trained on come from ``source`` if named.

    Raises:
        ConfigError: flags that contradict, or an unknown code base or class.
        CheckpointError: the ids mean nothing to ``source``.
    """
    check_arch(arch)
    if source and physical:
        raise ConfigError("--from and --physical both name the layers.", todo="Drop one.")
    if source and not ids:
        raise ConfigError("--from says who wrote the ids.", expected="--ids.")
    trained: Sequence[int] | None = parse_ids(physical, "--physical") if physical else None
    if source:
        trained = to_physical(ids, find(source, arch), layers)
    return table(ids, layers=layers, arch=arch, physical=trained)


def _ids(args: argparse.Namespace) -> int:
    rows = id_rows(
        parse_ids(args.ids, "--ids"),
        layers=args.layers,
        arch=args.arch,
        source=args.source,
        physical=args.physical,
    )
    notes = _notes(args.arch, args.source)
    if args.json:
        new_console(soft_wrap=True).print(
            json.dumps([asdict(row) for row in rows], indent=2), markup=False
        )
        errors = new_console(stderr=True, soft_wrap=True)
        for note in notes:
            errors.print(f"note: {note}", markup=False)
        return 0
    writes = bool(args.source or args.physical)
    shown = Table(box=None, pad_edge=False)
    names = ["code base", "versions", "an id X means physical", "these ids are physical"]
    for name in [*names, *(["to write"] if writes else [])]:
        shown.add_column(name, overflow="fold")
    for row in rows:
        cells = [row.code, row.versions, row.rule, _meaning(row, bool(args.ids))]
        written = row.cannot if row.write is None else _comma(row.write) or "no ids"
        shown.add_row(*cells, *([written] if writes else []))
    out = new_console()
    out.print(shown)
    for note in notes:
        out.print(f"note: {note}", markup=False, soft_wrap=True)
    return 0


def _notes(arch: str, source: str) -> list[str]:
    """What the table does not hold, and what in it was not verified."""
    notes = [f"not read, so not in the table: {'; '.join(gaps(arch))}"]
    notes.append(f"newest versions that were read: {newest()}; later ones are taken to be the same")
    if source and (doubt := unverified(source)):
        notes.append(f"--from {source}: {doubt}")
    if not arch:
        notes.append(
            f"no --arch, so the rules of most classes; SGLang reads ids otherwise for "
            f"{special_classes()}"
        )
    elif architecture(arch) not in SPECIAL:
        notes.append(f"{arch} has no rule of its own: it takes that of most classes")
    return notes


def _meaning(row: IdRow, asked: bool) -> str:
    if row.meaning is None:
        return row.refused or "no default"
    return _comma(row.meaning) if asked else f"{_comma(row.meaning)} (default)"


def _comma(values: Sequence[int]) -> str:
    return ",".join(map(str, values))

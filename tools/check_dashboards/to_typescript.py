"""Write boards as TypeScript whose types Grafana gives, one constant for each part.

Run as ``python tools/check_dashboards/to_typescript.py FOLDER_OF_BOARDS OUT.ts``; ``run.sh``
then lets tsc check it. Constants are named after board and panel, so that an error says where.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("bargauge", "heatmap", "stat", "table", "timeseries")


def statements(board: dict[str, Any]) -> Iterator[str]:
    """The board without its panels, then each panel, its options and its field settings."""
    name = _identifier(board["uid"])
    yield _constant(name, {k: v for k, v in board.items() if k != "panels"}, "Board")
    for panel in board["panels"]:
        kind = panel["type"]
        of = f"{name}_{panel['id']}_{_identifier(panel['title'])}"
        if kind == "row":
            yield _constant(of, panel, "AnyRow")
            continue
        if kind not in KINDS:
            raise SystemExit(f"{board['uid']}: no types are at hand for panels of type {kind}")
        yield _constant(of, panel, "AnyPanel")
        yield _constant(f"{of}_options", panel["options"], f"Options['{kind}']")
        custom = panel["fieldConfig"]["defaults"]["custom"]
        yield _constant(f"{of}_custom", custom, f"Custom['{kind}']")


def module(boards: list[dict[str, Any]]) -> str:
    """The whole file."""
    head = "import type { AnyPanel, AnyRow, Board, Custom, Options } from './types';\n"
    return head + "".join(line for board in boards for line in statements(board))


def _constant(name: str, value: Any, of: str) -> str:
    return f"export const {name} = {json.dumps(value, ensure_ascii=False)} satisfies {of};\n"


def _identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")


def main(arguments: list[str]) -> int:
    """Read every board of a folder, write the module."""
    folder, out = map(Path, arguments)
    boards = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    if not boards:
        raise SystemExit(f"no boards in {folder}")
    out.write_text(module(boards), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

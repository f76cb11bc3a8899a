"""The size budget: a file has one idea and at most 300 lines, a function at most 50.

Run as ``python tools/check_size.py [FOLDER ...]``; prints each excess and exits with 1 if any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_FILE_LINES = 300
MOST_FUNCTION_LINES = 50
FOLDERS = ("specbench", "tools", "benchmarks", "tests")


def excesses(path: Path) -> Iterator[str]:
    """What in the Python file ``path`` is over the budget, one sentence each."""
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    if lines > MOST_FILE_LINES:
        yield f"{path}: {lines} lines, at most {MOST_FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {length} lines, "
                    f"at most {MOST_FUNCTION_LINES}"
                )


def main(folders: list[str]) -> int:
    """Check every Python file under ``folders``."""
    found = [
        line
        for folder in folders or FOLDERS
        for path in sorted(Path(folder).rglob("*.py"))
        for line in excesses(path)
    ]
    print("\n".join(found) or "size: all files and functions are within the budget")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

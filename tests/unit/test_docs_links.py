"""Links of README, CHANGELOG and docs lead somewhere, and no page of docs stands alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def targets(page: Path) -> set[Path]:
    """The files that ``page`` links to, or names as docs/NAME."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    named = re.findall(r"(?<![\w/])docs/[\w./-]*\w", text)
    return {(page.parent / link).resolve() for link in links} | {ROOT / name for name in named}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert [path for path in targets(page) if not path.exists()] == []


def test_every_page_of_docs_is_reached_from_the_readme() -> None:
    seen = {ROOT / "CHANGELOG.md"}  # which is history, no way in
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page.suffix == ".md" and page not in seen:
            seen.add(page)
            todo += targets(page)
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page not in seen] == []

import re
from html.parser import HTMLParser

from specbench.metrics.summary import Summary
from specbench.report.content import content
from specbench.report.document import Heading, Items, Picture, Table
from specbench.report.html import html
from tests.unit.report.sample_runs import PROVENANCE

VOID = {"meta", "img"}


class Balance(HTMLParser):
    """Counts tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_and_needs_nothing_from_outside(summary: Summary) -> None:
    page = html(content(summary, PROVENANCE, pictures=("heatmap.png",)), {"heatmap.png": b"png"})
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "data:image/png;base64,cG5n" in page


def test_picture_without_bytes_is_left_out() -> None:
    assert "<img" not in html([Picture(file="x.png", caption="x")], {})


def test_foreign_text_is_escaped() -> None:
    page = html([Heading(text="<t>", level=1), Items(items=(("a", "<script>"),))], {})
    assert "<title>&lt;t&gt;</title>" in page
    assert "<script>" not in page


def test_words_are_set_left() -> None:
    page = html([Table(columns=("a", "n"), rows=(("x", "1"),), words=("a",))], {})
    assert '<td class="left">x</td><td>1</td>' in page

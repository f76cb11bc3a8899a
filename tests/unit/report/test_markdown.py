from specbench.grid import Dropped
from specbench.metrics.summary import Summary
from specbench.report.content import content
from specbench.report.document import Code, Folded, Heading, Items, Picture, Table, Text
from specbench.report.markdown import markdown
from specbench.report.plots import DRAWINGS
from tests.unit.report.golden import check_golden
from tests.unit.report.sample_runs import PROVENANCE

TABLE = Table(columns=("a", "n"), rows=(("x|y", "1"),), words=("a",))


DROPPED = Dropped(num_steps=1, topk=4, num_draft_tokens=8, reason="8 do not fit.")


def test_whole_report(summary: Summary) -> None:
    blocks = content(summary, PROVENANCE, dropped=(DROPPED,), pictures=tuple(DRAWINGS))
    check_golden("report.md", markdown(blocks))


def test_each_block() -> None:
    assert markdown([Heading(text="T", level=3)]) == "### T\n"
    assert markdown([Text(text="x", strong=True)]) == "**x**\n"
    assert markdown([Items(items=(("a", "b"),))]) == "- **a**: b\n"
    assert markdown([Code(text="ls")]) == "```sh\nls\n```\n"
    assert markdown([Picture(file="f.png", caption="c")]) == "![c](f.png)\n"
    assert markdown([TABLE]) == "| a | n |\n| :-- | --: |\n| x\\|y | 1 |\n"
    assert markdown([Folded(title="t", inside=TABLE)]).startswith("<details><summary>t</summary>")


def test_foreign_names_break_no_line_and_set_no_markup() -> None:
    name = "a*b*\r\n# c\u2028[d](e)"
    shown = r"a\*b\* # c [d]\(e)"
    assert markdown([Heading(text=name)]) == f"## {shown}\n"
    assert markdown([Items(items=((name, "x"),))]) == f"- **{shown}**: x\n"
    table = Table(columns=("a",), rows=((name,),), words=("a",))
    assert markdown([table]) == f"| a |\n| :-- |\n| {shown} |\n"
    assert markdown([Folded(title=name, inside=table)]).splitlines()[0].count(shown) == 1


def test_a_command_with_backticks_stays_in_its_fence() -> None:
    text = markdown([Code(text="echo '```'")])
    assert text == "````sh\necho '```'\n````\n"


def test_foreign_text_opens_no_tag() -> None:
    assert markdown([Items(items=(("failed", "<h1>502</h1>\nbad"),))]) == (
        "- **failed**: &lt;h1>502&lt;/h1> bad\n"
    )

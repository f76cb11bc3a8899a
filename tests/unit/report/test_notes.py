import dataclasses

from specbench.estimate import Caveat, Severity
from specbench.grid import Grid
from specbench.metrics.summary import Summary
from specbench.report import wording
from specbench.report.document import Code, Folded, Heading, Items, Text
from specbench.report.notes import caveats, elsewhere, not_run, reproduction
from tests.unit.report.sample_runs import PROVENANCE

NOTE = Caveat(code="clocks", severity=Severity.NOTE, text="clocks are not locked")
BAD = Caveat(code="looping", severity=Severity.INVALID, text="30% repeat")


def caveat_items(summary: Summary, found: list[tuple[Caveat, ...]]) -> tuple[tuple[str, str], ...]:
    arms = tuple(
        dataclasses.replace(arm, caveats=given)
        for arm, given in zip(summary.arms, found, strict=True)
    )
    heading, items = caveats(dataclasses.replace(summary, arms=arms))
    assert heading == Heading(text="Caveats")
    assert isinstance(items, Items)
    return items.items


def test_caveats_are_grouped_by_code(summary: Summary) -> None:
    found: list[tuple[Caveat, ...]] = [(NOTE,)] * len(summary.arms)
    found[2] = (NOTE, BAD)
    assert caveat_items(summary, found) == (
        ("clocks", "note, every point: clocks are not locked."),
        (
            "looping",
            "invalid, 2/1/3 at batch size 1: 30% repeat. To do: use prompts that the model can "
            "end, with its chat template.",
        ),
    )


def test_facts_of_one_point_are_not_told_of_every_point(summary: Summary) -> None:
    steps = [dataclasses.replace(NOTE, text=f"{i} steps") for i in range(len(summary.arms))]
    ((_, text),) = caveat_items(summary, [(one,) for one in steps])
    assert text == "note, every point; on 0/1/1 at batch size 1: 0 steps."


def test_a_sentence_that_ends_is_left_so(summary: Summary) -> None:
    ended = dataclasses.replace(NOTE, text="raise max_len.")
    ((_, text),) = caveat_items(summary, [(ended,)] * len(summary.arms))
    assert text == "note, every point: raise max_len."


def test_many_places_are_cut_short(summary: Summary) -> None:
    found: list[tuple[Caveat, ...]] = [(NOTE,)] * len(summary.arms)
    found[0] = found[3] = ()
    ((_, text),) = caveat_items(summary, found)
    assert text.endswith("and 12 more; on 1/1/2 at batch size 1: clocks are not locked.")


def test_all_that_speculate_are_one_word(summary: Summary) -> None:
    found: list[tuple[Caveat, ...]] = [() if a.spec.is_baseline else (NOTE,) for a in summary.arms]
    ((_, text),) = caveat_items(summary, found)
    assert text == "note, every speculative point: clocks are not locked."


def test_no_caveat_says_so(summary: Summary) -> None:
    arms = tuple(dataclasses.replace(arm, caveats=()) for arm in summary.arms)
    assert list(caveats(dataclasses.replace(summary, arms=arms)))[1] == Text(text="None.")


def test_dropped_points_have_reasons(summary: Summary, grid: Grid) -> None:
    _, items = not_run(summary, grid.dropped)
    assert isinstance(items, Items)
    assert [label for label, _ in items.items] == ["1/4/8", "1/4/16"]
    assert [text for _, text in items.items] == [gone.reason for gone in grid.dropped]


def test_points_that_the_run_did_not_reach(summary: Summary) -> None:
    _, items = not_run(dataclasses.replace(summary, not_measured=("k7",)), ())
    assert isinstance(items, Items)
    assert items.items[0][0] == "k7"


def test_a_point_that_one_cell_lacks_is_named(summary: Summary) -> None:
    gone = summary.arms[-1]
    assert gone.key.cell.batch_size == 4
    _, items = not_run(dataclasses.replace(summary, arms=summary.arms[:-1]), ())
    assert isinstance(items, Items)
    assert items.items == (
        (f"{wording.triple(gone.spec)} at batch size 4", "not measured: the run ended before it"),
    )


def test_whole_grid_leaves_the_section_out(summary: Summary) -> None:
    assert list(not_run(summary, ())) == []


def test_reproduction_has_command_and_hashes() -> None:
    _, command, folded = reproduction(PROVENANCE)
    assert command == Code(text="specbench sweep --num-steps 0..5 --topk 1,4")
    assert isinstance(folded, Folded)
    assert ("run", "started at", PROVENANCE.started_at) in folded.inside.rows
    assert ("inputs", "draft_sha256", "2222bbbb") in folded.inside.rows


def test_the_command_to_repeat_has_a_folder_of_its_own() -> None:
    def of(*words: str) -> str:
        return " ".join(elsewhere(words))

    assert of("sweep", "--out", "runs/a/", "--seed", "1") == "sweep --out runs/a-again --seed 1"
    assert of("sweep", "--out=runs/a", "--resume") == "sweep --out=runs/a-again"
    assert of("sweep", "--requests", "12") == "sweep --requests 12"


def test_one_code_may_stand_for_several_facts(summary: Summary) -> None:
    more = dataclasses.replace(NOTE, text="a driver is old")
    found: list[tuple[Caveat, ...]] = [(NOTE, more, NOTE)] * len(summary.arms)
    ((_, text),) = caveat_items(summary, found)
    assert text == "note, every point: clocks are not locked; a driver is old."

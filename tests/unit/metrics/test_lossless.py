import dataclasses
from collections.abc import Sequence

from specbench.metrics.example import trace_of
from specbench.metrics.lossless import Gap, Verdict, judge
from specbench.request import Message, Request, SamplingParams
from specbench.trace import Chunk, Finish, RequestTrace


def said(name: str, *ids: int, **changes: object) -> RequestTrace:
    trace = dataclasses.replace(trace_of([0], depth=0, name=name), output_ids=ids)
    return dataclasses.replace(trace, **changes)  # type: ignore[arg-type]  # fields of a trace


def test_equal_outputs_are_exact() -> None:
    verdict = judge([said("A", 1, 2), said("B", 3)], [said("B", 3), said("A", 1, 2)])
    assert (verdict.verdict, verdict.compared, verdict.identical) == (Verdict.EXACT, 2, 2)


def test_first_difference_is_named_and_its_prefix_looked_at() -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []

    def gap(request: Request, output_ids: Sequence[int]) -> float:
        asked.append((request.request_id, tuple(output_ids)))
        return 0.3

    verdict = judge([said("A", 1, 2, 3, 4)], [said("A", 1, 2, 9, 8)], gap=gap)
    assert verdict.verdict is Verdict.LOSSY
    (difference,) = verdict.differences
    assert (difference.position, difference.baseline_token, difference.arm_token) == (2, 3, 9)
    assert asked == [("A", (1, 2))]


def test_a_tie_is_no_loss() -> None:
    verdict = judge([said("A", 1, 2)], [said("A", 1, 3)], gap=lambda request, ids: 9e-6)
    assert verdict.verdict is Verdict.TIE_ONLY


def test_the_tolerance_is_strict() -> None:
    verdict = judge([said("A", 1, 2)], [said("A", 1, 3)], gap=lambda request, ids: 1e-5)
    assert verdict.verdict is Verdict.LOSSY


def test_one_clear_difference_among_ties_is_lossy() -> None:
    verdict = judge(
        [said("A", 1, 2), said("B", 5)],
        [said("A", 1, 3), said("B", 6)],
        gap=lambda request, ids: 0.5 if request.request_id == "B" else 0.0,
    )
    assert verdict.verdict is Verdict.LOSSY


def test_an_output_that_ends_early_differs_there() -> None:
    verdict = judge([said("A", 1, 2)], [said("A", 1, 2, 3)], gap=lambda request, ids: 0.2)
    (difference,) = verdict.differences
    assert (difference.position, difference.baseline_token, difference.arm_token) == (2, None, 3)


def test_without_scores_a_difference_is_inconclusive() -> None:
    verdict = judge([said("A", 1, 2)], [said("A", 1, 3)])
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert "no one saw the scores" in verdict.reason


def test_sampled_outputs_are_inconclusive() -> None:
    trace = said("A", 1)
    warm = dataclasses.replace(
        trace, request=dataclasses.replace(trace.request, sampling=SamplingParams(temperature=0.7))
    )
    assert judge([warm], [warm]).verdict is Verdict.INCONCLUSIVE


def test_nothing_to_compare_is_inconclusive() -> None:
    assert judge([said("A", 1)], [said("B", 1)]).verdict is Verdict.INCONCLUSIVE
    failed = said("A", 1, finish=Finish.ERROR)
    assert judge([said("A", 1)], [failed]).verdict is Verdict.INCONCLUSIVE


def test_later_turns_after_another_reply_are_not_compared() -> None:
    def turn(reply: str, *ids: int) -> RequestTrace:
        messages = (
            Message(role="user", content="x"),
            Message(role="assistant", content=reply),
            Message(role="user", content="y"),
        )
        request = Request(request_id="A#1", messages=messages, prompt_id="A", turn=1)
        return said("A", *ids, request=request)

    verdict = judge(
        [said("A", 1, 2), turn("one", 7)],
        [said("A", 1, 3), turn("two", 8)],
        gap=lambda request, ids: 0.0,
    )
    assert (verdict.verdict, verdict.compared) == (Verdict.TIE_ONLY, 1)


def test_text_stands_in_for_ids() -> None:
    def text(words: str) -> RequestTrace:
        return said("A", output_ids=None, chunks=(Chunk(at_ns=1, tokens=1, text=words),))

    assert judge([text("a b")], [text("a b")]).verdict is Verdict.EXACT
    assert judge([text("a b")], [text("a c")]).verdict is Verdict.INCONCLUSIVE


def test_what_plain_decoding_does_to_itself_is_rounding() -> None:
    def gap(size: float) -> Gap:
        return lambda request, ids: size

    plain, other = [said("A", 1, 2), said("B", 7)], [said("A", 1, 3), said("B", 7)]
    control = judge(plain, other, gap=gap(2e-3))
    assert control.verdict is Verdict.LOSSY  # against the strict bound
    within = judge(plain, other, gap=gap(2e-3), control=control)
    assert within.verdict is Verdict.TIE_ONLY
    assert (within.control_compared, within.control_identical) == (2, 1)
    assert judge(plain, other, gap=gap(4e-3), control=control).verdict is Verdict.LOSSY


def test_severity_is_the_clearest_favourite_passed_over() -> None:
    verdict = judge(
        [said("A", 1, 2), said("B", 5, 6, 7)],
        [said("A", 1, 3), said("B", 5, 6, 8)],
        gap=lambda request, ids: 0.1 * len(ids),
    )
    assert verdict.largest_gap == 0.2
    assert verdict.positions == (1, 2)

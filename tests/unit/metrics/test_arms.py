from specbench.metrics.arms import Cell, gather, key_of
from specbench.metrics.example import run_of, trace_of


def test_blocks_of_an_arm_are_joined_in_order() -> None:
    late = run_of(trace_of([1], depth=1, name="late"), block=1)
    early = run_of(trace_of([1], depth=1, name="early"), block=0)
    other = run_of(trace_of([1], depth=1), point_id="k1")
    arms = gather([late, other, early])
    assert list(arms) == [key_of(late), key_of(other)]
    assert [t.request.request_id for t in arms[key_of(late)].measured] == ["early", "late"]
    assert [r.block for r in arms[key_of(late)].requests] == [0, 1]


def test_cells_sort_by_workload_temperature_batch() -> None:
    cells = [
        Cell(workload="b", temperature=0.0, batch_size=1),
        Cell(workload="a", temperature=1.0, batch_size=1),
        Cell(workload="a", temperature=0.0, batch_size=4),
    ]
    assert sorted(cells) == [cells[2], cells[1], cells[0]]

from specbench.metrics.example import run_of, trace_of


def test_worked_example_of_the_definitions() -> None:
    a, b = trace_of([3, 2, 0, 1], depth=3), trace_of([0, 0], depth=3, name="B")
    run = run_of(a, b)
    assert [t.usage.completion_tokens for t in run.requests] == [11, 3]
    assert [c.tokens for c in a.chunks] == [1, 4, 3, 1, 2]
    assert run.wall_ns == a.end_ns + b.end_ns == 100_000_000

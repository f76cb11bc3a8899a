"""The made-up sweep is only worth something if it behaves like a real one."""

import dataclasses

from specbench.config import SpecConfig
from specbench.metrics.identities import residuals
from specbench.metrics.summary import SummaryInput, summarise
from specbench.metrics.sums import complete_sums
from tests.unit.report.sample_runs import arm_runs, prompts, sample_input


def test_identities_hold_in_every_arm(given: SummaryInput) -> None:
    assert residuals(complete_sums(given.runs)) == ()


def test_the_same_seed_gives_the_same_runs() -> None:
    asked = prompts(5)
    assert arm_runs(SpecConfig.chain(2), asked) == arm_runs(SpecConfig.chain(2), asked)


def test_a_batch_is_never_exceeded_and_shares_its_forwards() -> None:
    (run,) = arm_runs(SpecConfig.chain(2), prompts(9), batch_size=4, blocks=1)
    forwards: dict[int, list[int]] = {}
    for trace in run.requests:
        for step in trace.steps:
            forwards.setdefault(step.batch_step, []).append(step.batch)
    assert all(len(seen) == seen[0] <= 4 for seen in forwards.values())


def test_category_free_run_has_no_category_rows() -> None:
    given = sample_input(requests=5, batch_sizes=(1,))
    bare = tuple(
        dataclasses.replace(
            run,
            requests=tuple(
                dataclasses.replace(t, request=dataclasses.replace(t.request, category=""))
                for t in run.requests
            ),
        )
        for run in given.runs
    )
    assert all(not a.categories for a in summarise(dataclasses.replace(given, runs=bare)).arms)

"""The bar shows how far a sweep is and what the last block measured."""

from __future__ import annotations

import io

from rich.console import Console

from specbench.progress import ProgressBar
from specbench.sweep import plan_jobs
from tests.fakes import FakeBackend
from tests.unit.test_run import block_of
from tests.unit.test_sweep import SPEC, workload_of


def test_the_bar_counts_blocks_and_names_the_estimate() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    job = next(
        j for j in plan_jobs(SPEC, SPEC.grid().points, [workload_of()]) if j.point.point_id == "k3"
    )
    with ProgressBar(console) as bar:
        bar.started(24, 5)
        bar.saved(job, block_of(FakeBackend()))

    text = out.getvalue()
    assert "6/24" in text
    assert "accept length" in text
    assert "k3" in text

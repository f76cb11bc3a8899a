"""A long sweep under a real Prometheus: does a counter lose a step? python -m benchmarks.watched

Starts Debian's ``prometheus`` with a scrape every second, runs ``specbench sweep`` on the shipped
pair with --metrics-port, and then holds every counter against the run directory, by point and by
position. Ends with 1 when a total differs or when the sweep was shorter than --minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from specbench.config import SpecConfig
from specbench.store import RunDir
from tests.prometheus_server import PrometheusServer, free_port, prometheus

NUMBERS = ("num_steps", "topk", "num_draft_tokens")
Totals = dict[str, Counter[tuple[str, ...]]]
COUNTERS = {
    "specbench_verify_steps_total": ("point",),
    "specbench_emitted_tokens_total": ("point",),
    "specbench_step_seconds_count": ("point",),
    "specbench_output_tokens_total": ("point",),
    "specbench_requests_total": ("point",),
    "specbench_drafted_positions_total": ("point", "position"),
    "specbench_accepted_tokens_total": ("point", "position"),
}
SWEEP = (sys.executable, "-m", "specbench.cli", "sweep")
GRID = (
    *("--num-steps", "0..7", "--topk", "1,2,4", "--num-draft-tokens", "8,16"),
    *("--batch-size", "1,2,4"),
)


def _points(server: PrometheusServer) -> dict[tuple[str, str], str]:
    """The label ``point`` of (point_id, batch size)."""
    points = {}
    for one in server.query("last_over_time(specbench_point_info[3h])"):
        spec = SpecConfig(**{name: int(one.labels[name]) for name in NUMBERS})
        points[spec.point_id, one.labels["batch_size"]] = one.labels["point"]
    return points


def held(out: Path, server: PrometheusServer) -> Totals:
    """What the run directory holds, by the labels of each counter."""
    totals: Totals = {name: Counter() for name in COUNTERS}
    points = _points(server)
    with RunDir.open(out) as run_dir:
        for arm in run_dir.iter_runs():
            point = points[arm.point_id, str(arm.batch_size)]
            forwards = {step.batch_step for trace in arm.requests for step in trace.steps}
            totals["specbench_step_seconds_count"][point,] += len(forwards)
            for trace in arm.requests:
                totals["specbench_requests_total"][point,] += 1
                made = trace.usage.completion_tokens or 0
                totals["specbench_output_tokens_total"][point,] += made
                for step in trace.steps:
                    totals["specbench_verify_steps_total"][point,] += 1
                    totals["specbench_emitted_tokens_total"][point,] += step.emitted
                    for name, depth in (
                        ("specbench_drafted_positions_total", step.depth),
                        ("specbench_accepted_tokens_total", step.accepted),
                    ):
                        totals[name].update((point, str(i + 1)) for i in range(depth))
    return totals


def seen(server: PrometheusServer) -> Totals:
    """What Prometheus has seen last of each counter, zeros left out."""
    totals: Totals = {}
    for name, labels in COUNTERS.items():
        found = server.query(f"sum by ({','.join(labels)}) (last_over_time({name}[3h]))")
        totals[name] = Counter(
            {tuple(one.labels[by] for by in labels): int(one.value) for one in found if one.value}
        )
    return totals


def watch(folder: Path, requests: int, blocks: int) -> bool:
    """Run the sweep, print a line per counter; True when every total is equal."""
    out, port = folder / "run", free_port()
    size = ("--requests", str(requests), "--blocks", str(blocks))
    with prometheus(folder, [f"127.0.0.1:{port}"]) as server:
        server.until("up == 0")  # it knows the target, which is not there yet
        subprocess.run(
            [*SWEEP, *GRID, *size, "--out", str(out), "--metrics-port", str(port)], check=True
        )
        scrapes = server.query('sum(count_over_time(up{job="specbench"}[3h]) )')[0].value
        kept, shown = held(out, server), seen(server)
    for name, counter in kept.items():
        verdict = "equal" if counter == shown[name] else "DIFFERENT"
        print(f"{name:<36} {counter.total():>9} in {len(counter):>3} series: {verdict}")
    print(f"scrapes: {scrapes:.0f}")
    return kept == shown


def main() -> int:
    """Parse the command line, run and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="shortest sweep that counts")
    parser.add_argument("--requests", type=int, default=100, help="prompts per arm")
    parser.add_argument("--blocks", type=int, default=4)
    given = parser.parse_args()
    begun = time.perf_counter_ns()
    with tempfile.TemporaryDirectory() as folder:
        equal = watch(Path(folder), given.requests, given.blocks)
    minutes = (time.perf_counter_ns() - begun) / 60e9
    print(f"{minutes:.1f} minutes; every total equal: {equal}")
    return 0 if equal and minutes >= given.minutes else 1


if __name__ == "__main__":
    sys.exit(main())

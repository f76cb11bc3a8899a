"""A run of a million verify steps: how long its report takes, and how much memory.

Usage: ``python -m benchmarks.scale [--requests 10000] [--steps 100]``

Writes a made-up run directory (a baseline and one chain; requests of ``--steps`` verify steps),
block by block, and watches the writer's memory; then rebuilds its reports in a process of its own
and prints that process's time and peak memory. Aims: 10 s and 1 GB on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specbench.config import SpecConfig
from specbench.metrics.example import run_of, trace_of
from specbench.request import SamplingParams
from specbench.store import RunDir
from specbench.trace import Provenance, RequestTrace

DEPTH = 3
POINTS = {"base": SpecConfig.baseline(), "k3": SpecConfig.chain(DEPTH)}
REPORT = (
    "import resource, sys, time\n"
    "begun = time.perf_counter()\n"
    "from specbench.cli import main\n"
    "code = main(['report', sys.argv[1]])\n"
    "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024\n"
    "print(f'SCALE {code} {time.perf_counter() - begun:.2f} {peak:.0f}')\n"
)


def trace(number: int, steps: int, depth: int, rng: np.random.Generator) -> RequestTrace:
    """One made-up request of ``steps`` verify steps."""
    accepted = rng.binomial(depth, 0.6, steps).tolist() if depth else [0] * steps
    name = f"p{number}"
    made = trace_of(
        accepted,
        depth=depth,
        name=name,
        step_ms=rng.normal(10.0 if depth else 6.0, 0.4, steps).tolist(),
        first_step=number * steps,
    )
    total = made.usage.completion_tokens or 0
    return dataclasses.replace(
        made,
        request=dataclasses.replace(
            made.request,
            request_id=f"{name}#0",
            workload="scale",
            category="ab"[number % 2],
            sampling=SamplingParams(max_tokens=total),
        ),
        chunks=tuple(dataclasses.replace(chunk, text="b") for chunk in made.chunks),
        output_ids=tuple(rng.integers(0, 4096, total).tolist()),
    )


def write(path: Path, requests: int, steps: int, per_block: int) -> tuple[float, float]:
    """Write the run; the memory of this process in MB after a tenth of it, and at the end."""
    provenance = Provenance(
        started_at="2026-01-01T00:00:00+00:00", command=("scale",), software={}, machine={},
        device={}, inputs={},
    )  # fmt: skip
    facts = {"backend": "made up", "target": "t", "draft": "d", "end_ids": [], "caveats": []}
    asked = {"load": {"request_rate": None}}
    content = {
        "asked": asked, "points": POINTS, "dropped": [], "provenance": provenance, "facts": facts,
    }  # fmt: skip
    early = 0.0
    blocks = requests // 2 // per_block
    with RunDir.create(path, content) as run_dir:
        for block in range(blocks):
            for name, spec in POINTS.items():
                rng = np.random.default_rng((block, spec.num_steps))
                numbers = range(block * per_block, (block + 1) * per_block)
                made = tuple(trace(n, steps, spec.num_steps, rng) for n in numbers)
                run_dir.save_block(run_of(*made, point_id=name, block=block))
            if block == blocks // 10:
                early = _peak_mb()
        late = _peak_mb()
        run_dir.finish()
    return early, late


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Parse the command line, write, report, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--per-block", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        begun = time.perf_counter()
        early, late = write(path, given.requests, given.steps, given.per_block)
        wrote = time.perf_counter() - begun
        print(f"recorded {given.requests * given.steps:,} verify steps in {wrote:.1f} s")
        print(f"memory while recording: {early:.0f} MB after a tenth, {late:.0f} MB at the end")
        done = subprocess.run(
            [sys.executable, "-c", REPORT, str(path)], capture_output=True, text=True, check=False
        )
    print(done.stderr, end="")
    code, seconds, peak = done.stdout.split("SCALE ")[1].split()
    print(f"report: {float(seconds):.1f} s, peak {float(peak):.0f} MB (exit code {code})")
    return 0 if int(code) == 0 and float(seconds) <= 10 and float(peak) <= 1024 else 1


if __name__ == "__main__":
    sys.exit(main())

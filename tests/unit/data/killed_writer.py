"""Resumes the run in the folder of its first argument and saves blocks until it is killed."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from specbench.request import Request
from specbench.store import RunDir
from specbench.trace import ArmRun, Chunk, Evidence, Finish, RequestTrace, StepTrace

RUN: dict[str, Any] = {"asked": {"n": 1}, "points": [], "dropped": [], "provenance": {"inputs": {}}}


def arm(block: int) -> ArmRun:
    """Block number ``block``; its size and content follow from the number."""
    steps = tuple(
        StepTrace(batch_step=i, batch=1, committed=i, drafted=3, depth=3, accepted=i % 4, emitted=1)
        for i in range(block % 5 * 40)
    )
    requests = tuple(
        RequestTrace(
            request=Request(request_id=f"r{block % 7}-{i}", prompt="x" * 500),
            due_ns=block,
            sent_ns=block + 1,
            end_ns=block + 900,
            chunks=tuple(Chunk(at_ns=block + 2 + j, tokens=2, text="ab") for j in range(20)),
            steps=steps,
            finish=Finish.STOP,
            evidence=Evidence.STEPS,
        )
        for i in range(1 + block % 3)
    )
    return ArmRun(
        point_id="k3",
        workload="w",
        batch_size=1,
        temperature=0.0,
        block=block,
        started_ns=block,
        wall_ns=1000,
        requests=requests,
    )


if __name__ == "__main__":
    run = RunDir.resume(Path(sys.argv[1]), RUN)
    for number in itertools.count(len(run.blocks())):
        run.save_block(arm(number))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()

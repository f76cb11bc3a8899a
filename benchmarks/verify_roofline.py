"""A verify step beside the time that reading its weights takes.

Run it as python -m benchmarks.verify_roofline. It needs a CUDA device, and exits with 2 where there
is none: on a CPU the table would say nothing of one. The bandwidth is measured in the same run:
large copies within the device's memory, of which each reads and writes every byte. The
floor of a step is the bytes of weights it reads over that bandwidth; the share that a step reaches
is floor / time, and the aim is 0.85 at batch 1. Keys and values are not in the floor, so a long
context lowers the share.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.demo import DRAFT, TARGET
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.request import Request, SamplingParams

AIM = 0.85
COPY_BYTES = 1 << 30


def main() -> int:
    """Parse, measure and print a JSON object per batch size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", type=Path, default=TARGET)
    parser.add_argument("--draft", type=Path, default=DRAFT)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--num-steps", type=int, default=3)
    parser.add_argument("--prompt-len", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=50)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("verify_roofline needs a CUDA device, and torch finds none here.", file=sys.stderr)
        return 2
    config = EngineConfig(device="cuda", max_batch_size=max(args.batch_sizes))
    engine = Engine(ModelPair.load(args.target, args.draft, config), config)
    bandwidth = copy_bandwidth(args.repeat)
    with torch.inference_mode():
        for batch_size in args.batch_sizes:
            row = measure(engine, args.num_steps, batch_size, args.prompt_len, args.repeat)
            floor = row["weight_bytes"] / bandwidth
            share = floor / row["verify_s"]
            facts = {"copy_bytes_per_s": bandwidth, "floor_s": floor, "share": share, "aim": AIM}
            print(json.dumps(row | facts | {"device": engine.pair.device_facts["device"]}))
    return 0


def event() -> torch.cuda.Event:
    """A point in the device's own time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has no types here


def copy_bandwidth(repeat: int) -> float:
    """Bytes per second of a copy within the device's memory, reads and writes together."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / seconds(lambda: target.copy_(source), repeat)


def measure(
    engine: Engine, steps: int, batch_size: int, prompt_len: int, repeat: int
) -> dict[str, float]:
    """Median time of one verify region at ``batch_size``, and the bytes of weights it reads."""
    engine.configure(SpecConfig.chain(steps), batch_size)
    sampling = SamplingParams(max_tokens=64, ignore_eos=True)
    for lane in range(batch_size):
        prompt = tuple((7 * at + lane) % 200 for at in range(prompt_len))
        engine.submit(Request(request_id=f"r{lane}", prompt_ids=prompt, sampling=sampling))
    while len(engine.scheduler.running) < batch_size:
        engine.step()
    batch = engine._inputs.batch(engine.scheduler.running)
    tree = engine.drafter.propose(batch)
    engine.runner.verify(batch, tree)
    taken = seconds(lambda: engine.runner.verify(batch, tree), repeat)
    for sequence in list(engine.scheduler.running):
        engine.cancel(sequence.handle)
    rows = batch_size * (steps + 1)
    return {
        "batch_size": batch_size,
        "nodes": steps + 1,
        "verify_s": taken,
        "weight_bytes": engine.pair.target.read_bytes(rows),
    }


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Median time of ``work`` on the device, by its own events, after three calls to warm up."""
    for _ in range(3):
        work()
    times: list[float] = []
    for _ in range(repeat):
        begin, end = event(), event()
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())

"""Ordinary sweeps of the shipped pair, for counting false alarms on runs with nothing wrong.

Usage: ``python -m benchmarks.ordinary_runs --out DIR [--runs 40] [--seconds 500]``, again until it
says that all runs are there; then ``python -m benchmarks.validity_alarms --runs DIR/run*``.

Each run is the command a user would give: plain decoding twice, chains and trees in interleaved
blocks, 12 prompts an arm, 11 arms. Runs differ in prompts (eight parts of the shipped workload) and
seed, and take turns between greedy and sampled decoding; every eighth is at batch size 4. Outputs
are short (64 tokens), so that many arms can be had. A run that was cut off is resumed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from specbench.workload import shipped

GRID = ("--num-steps", "0,1,2,3,5", "--topk", "1,2,4", "--num-draft-tokens", "8")
PROMPTS = 12
KINDS = (*(("0", "1"), ("0.8", "1")) * 3, ("0", "1"), ("0", "4"))  # temperature, batch size
CLI = "import sys; from specbench.cli import main; sys.exit(main(sys.argv[1:]))"


def parts(out: Path) -> list[Path]:
    """The shipped prompts cut into files of ``PROMPTS`` each, in ``out``."""
    lines = (shipped()["default"] / "prompts.jsonl").read_text("utf-8").splitlines(keepends=True)
    files = []
    for part in range(len(lines) // PROMPTS):
        files.append(out / f"prompts{part}.jsonl")
        files[-1].write_text("".join(lines[part * PROMPTS : (part + 1) * PROMPTS]), "utf-8")
    return files


def command(folder: Path, number: int, prompts: Path) -> list[str]:
    """The sweep that makes run ``number`` in ``folder``; it goes on where it was cut off."""
    temperature, batch_size = KINDS[number % len(KINDS)]
    return [
        *(sys.executable, "-c", CLI, "sweep", *GRID, "--noise-floor"),
        *("--workload", str(prompts), "--requests", str(PROMPTS), "--max-tokens", "64"),
        *("--temperature", temperature, "--batch-size", batch_size, "--seed", str(number)),
        *("--out", str(folder), *(["--resume"] if (folder / "run.json").is_file() else [])),
    ]


def is_whole(folder: Path) -> bool:
    """True when the run has ended and its report is written."""
    return (folder / "report.html").is_file()


def main() -> int:
    """Measure what is missing until the time is up; 0 when every run is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=500.0, help="begin no run after this")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    prompts = parts(given.out)
    begun = time.perf_counter()
    folders = [given.out / f"run{number:03d}" for number in range(given.runs)]
    for number, folder in enumerate(folders):
        if is_whole(folder) or time.perf_counter() - begun > given.seconds:
            continue
        done = subprocess.run(
            command(folder, number, prompts[number % len(prompts)]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
            return done.returncode
    whole = sum(map(is_whole, folders))
    print(f"{whole} of {given.runs} runs are in {given.out}")
    return 0 if whole == given.runs else 1


if __name__ == "__main__":
    sys.exit(main())

"""Replays scenarios A to I of docs/saga.md on the shipped pair; prints what specbench says.

``python examples/saga/replay.py [LETTER ...] [--out DIR]`` runs the named ones, or all; what is in
``output/`` was written with ``--out examples/saga/output``. Scenarios D and E switch a fault on
inside the engine, which no checkpoint can express.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from specbench import demo
from specbench.cli import main

WRONG = {"eagle_aux_hidden_state_layer_ids": [0, 2, 5]}
Scenario = Callable[[Path], None]


def say(*words: str) -> None:
    """A command as a user would type it, and what it prints."""
    shown = [f"'{w}'" if " " in w else w for w in words]
    tell(f"$ specbench {' '.join(shown)}")
    code = main(words)
    tell(f"(exit code {code})\n")


def tell(text: str) -> None:
    """A line, unwrapped."""
    Console(highlight=False, soft_wrap=True).print(text, markup=False)


def edited(work: Path, name: str, change: Callable[[dict[str, Any]], None]) -> str:
    """A copy of the shipped draft with another config."""
    folder = work / name
    shutil.copytree(demo.DRAFT, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(config)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return os.path.relpath(folder)


def launch(work: Path) -> None:
    """A: num_steps 1 silently overrides num_draft_tokens 16."""
    numbers = "--speculative-num-steps 1 --speculative-eagle-topk 1"
    say("doctor", "--launch", f"{numbers} --speculative-num-draft-tokens 16")


def wrong_ids(work: Path) -> None:
    """B: layer ids one too low; more steps add nothing, and the probe names the layers."""
    draft = edited(work, "wrong-ids", lambda c: c["eagle_config"].update(WRONG))
    pair = ("--target", os.path.relpath(demo.TARGET), "--draft", draft)
    say("doctor", *pair)


def refuted(work: Path) -> None:
    """C: the repair that was proposed, the embedding in place of a layer."""
    say("doctor", "--propose-ids", "0,2,4")


def engine_fault(name: str) -> Scenario:
    """D and E: the files are right and the engine is not."""

    def replay(work: Path) -> None:
        from dataclasses import replace

        from specbench.config import SpecConfig
        from specbench.doctor.checks_subject import read_subject
        from specbench.doctor.checks_wiring import CONFIG, load
        from specbench.doctor.report import explain
        from specbench.doctor.wiring_engine import engine_findings
        from specbench.doctor.wiring_served import compare_served
        from specbench.engine.engine import Engine
        from specbench.engine.faults import inject
        from specbench.request import SamplingParams
        from specbench.workload import load_workload

        tell(f"# engine with the fault {name!r}, num_steps 3")
        requests = load_workload("default").requests(36, SamplingParams(max_tokens=32))
        loaded = load(read_subject(demo.TARGET, demo.DRAFT), requests)
        engine = Engine(loaded.pair, replace(CONFIG, max_batch_size=1))
        engine.configure(SpecConfig.chain(3), 1)
        inject(engine, name)
        served = compare_served(engine, loaded.draft, loaded.captured, loaded.bounds)
        found = list(engine_findings(served, loaded.draft.claimed))
        for finding in found:
            tell(explain(found, finding.code))

    return replay


def norm_flag(work: Path) -> None:
    """F: norm_before_residual as in training, or not."""
    draft = edited(work, "norm-flag", lambda c: c.update(norm_before_residual=True))
    say("doctor", "--target", os.path.relpath(demo.TARGET), "--draft", draft)


def healthy(work: Path) -> None:
    """G: all right."""
    say("doctor")


def formulas(work: Path) -> None:
    """H: one run, and each tool's number for it."""
    run = os.path.relpath(work / "run")
    grid = ("--num-steps", "5", "--batch-size", "1", "--temperature", "0")
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(("sweep", *grid, "--requests", "12", "--max-tokens", "32", "--out", run))
    if code != 0:
        raise SystemExit(code)
    say("report", run, "--definitions", "k5")


def slower(work: Path) -> None:
    """I: acceptance is right, and a verify step costs 2.96 plain ones."""
    shares = "0.68,0.46,0.31,0.21,0.15"
    say("doctor", "--per-position", shares, "--steps", "20000", "--break-even", "2.96")


SCENARIOS: dict[str, Scenario] = {
    "A": launch,
    "B": wrong_ids,
    "C": refuted,
    "D": engine_fault("graph_default"),
    "E": engine_fault("decode_shift"),
    "F": norm_flag,
    "G": healthy,
    "H": formulas,
    "I": slower,
}


def run(letters: list[str], out: Path | None) -> None:
    """Each scenario, printed or written to ``out``/LETTER.txt."""
    for letter in letters or list(SCENARIOS):
        with tempfile.TemporaryDirectory(dir=".", prefix="saga-") as folder:
            if out is None:
                SCENARIOS[letter](Path(folder))
                continue
            out.mkdir(parents=True, exist_ok=True)
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                SCENARIOS[letter](Path(folder))
            plain = text.getvalue().replace(os.path.relpath(folder), "saga")
            lines = (line.rstrip() for line in plain.splitlines())
            (out / f"{letter}.txt").write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("letters", nargs="*", metavar="LETTER", help=", ".join(SCENARIOS))
    parser.add_argument("--out", type=Path, help="write LETTER.txt there instead of printing")
    asked = parser.parse_args()
    unknown = [letter for letter in asked.letters if letter not in SCENARIOS]
    if unknown:
        sys.exit(f"unknown scenario {unknown[0]}; known: {', '.join(SCENARIOS)}")
    os.environ.setdefault("COLUMNS", "100")  # as wide wherever it is replayed
    run(asked.letters, asked.out)

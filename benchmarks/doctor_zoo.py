"""The whole doctor on every injected fault of the zoo, and on sound re-exports of the shipped pair.

Usage: ``python -m benchmarks.doctor_zoo [--only NAME ...] [--requests 36] [--max-tokens 32]``
``[--workload default] [--out FOLDER] [--markdown FILE]``

Results are kept in FOLDER, a file for each entry, so that a run that was broken off goes on where
it was. Printed, and written with ``--markdown``: a table of faults with the signature that was
measured, the first cause that the doctor named, the place of the right one, and the share of kinds
of faults (the same wiring in another spelling is one kind) where the right cause is first and among
the first three.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specbench import demo
from specbench.checkpoint import read_draft, read_target
from specbench.checkpoint.layouts import LAYOUTS
from specbench.checkpoint.writers import write_draft
from specbench.doctor.findings import Severity
from specbench.doctor.wiring_more import MOST_REQUESTS
from specbench.doctor.zoo import Fault, every_fault, kinds_of
from specbench.doctor.zoo_run import Bench, Examined
from specbench.request import SamplingParams
from specbench.workload import load_workload

MARK = "<!-- measured by benchmarks/doctor_zoo.py -->"
SOUND = "sound: "
Row = dict[str, Any]


def row_of(name: str, seen: Examined, place: int | None) -> Row:
    """What is kept of an entry."""
    told = [f for f in seen.findings if f.severity is not Severity.NOTE]
    return {
        "name": name,
        "place": place,
        "shape": seen.shape,
        "accept_length": None if seen.served is None else seen.served.accept_length,
        "seconds": seen.seconds,
        "stopped": seen.stopped,
        "findings": [[f.severity.value, f.code, f.title, round(f.score, 3)] for f in told],
    }


def exports(work: Path) -> list[tuple[str, Path, tuple[int, ...] | None]]:
    """The shipped draft written again in every format; SafeAILab's names no layers."""
    target, folder = read_target(demo.TARGET)
    arch = str(folder.config["architectures"][0])
    found = []
    for layout in LAYOUTS:
        draft, source = read_draft(demo.DRAFT, target)
        out, silent = work / f"as-{layout}", layout == "safeailab"
        write_draft(
            draft, source, out, layout=layout, arch=arch, layers=target.n_layers, drop_ids=silent
        )
        found.append((layout, out, draft.capture_physical if silent else None))
    return found


class Runner:
    """Examines what has no result yet."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.out = Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self._work = Path(tempfile.mkdtemp(prefix="doctor-zoo-"))
        sampling = SamplingParams(max_tokens=args.max_tokens)
        known = load_workload(args.workload).requests(None, sampling)
        self._requests = known[: args.requests]
        self._further = known[args.requests : MOST_REQUESTS]
        self._bench: Bench | None = None

    @property
    def bench(self) -> Bench:
        """With the text captured; made when first needed."""
        if self._bench is None:
            self._bench = Bench(self._work, self._requests, further=self._further)
            self._keep(row_of(f"{SOUND}shipped", self._bench.examine_sound(), None))
        return self._bench

    def fault(self, fault: Fault) -> Row:
        """An entry's result."""
        known = self._known(fault.name)
        if known is not None:
            return known
        seen = self.bench.examine(fault)
        return self._keep(row_of(fault.name, seen, fault.place(seen.findings)))

    def sound(self) -> list[Row]:
        """The shipped pair and its re-exports."""
        shipped = self._known(f"{SOUND}shipped")
        if shipped is None:
            _ = self.bench
            shipped = self._known(f"{SOUND}shipped")
        rows = [shipped or {}]
        for layout, folder, given in exports(self._work):
            name = f"{SOUND}{layout}"
            row = self._known(name)
            if row is None:
                row = self._keep(row_of(name, self.bench.examine_files(folder, given=given), None))
            rows.append(row)
        return rows

    def _path(self, name: str) -> Path:
        return self.out / f"{name.replace(': ', '-')}.json"

    def _known(self, name: str) -> Row | None:
        path = self._path(name)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def _keep(self, row: Row) -> Row:
        self._path(row["name"]).write_text(json.dumps(row, indent=1), encoding="utf-8")
        first = row["findings"][0][1:3] if row["findings"] else ["nothing", ""]
        print(f"{row['name']:28} place {row['place']}  {first[0]}: {first[1][:80]}", flush=True)
        return row


def table(faults: Sequence[Fault], rows: Sequence[Row]) -> list[str]:
    """Markdown lines, one a fault."""
    lines = [
        "| fault | F | kind | signature: expected, seen | accept length | first cause | place "
        "| s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for fault, row in zip(faults, rows, strict=True):
        length = row["accept_length"]
        first = row["findings"][0][1] if row["findings"] else "none"
        served = "not served" if length is None else f"{length:.2f}"
        lines.append(
            f"| `{fault.name}` | {', '.join(fault.failures)} | {fault.kind} | {fault.shape}, "
            f"{row['shape'] or '-'} | {served} | `{first}` | {row['place'] or 'missing'} | "
            f"{row['seconds']:.0f} |"
        )
    return lines


def shares(faults: Sequence[Fault], rows: Sequence[Row]) -> list[str]:
    """How often the right cause is first, and among the first three, by kind of fault."""
    place = {fault.name: row["place"] for fault, row in zip(faults, rows, strict=True)}
    kinds = kinds_of(faults)

    def within(most: int) -> tuple[int, list[str]]:
        bad = [
            kind
            for kind, members in kinds.items()
            if any(place[f.name] is None or place[f.name] > most for f in members)
        ]
        return len(kinds) - len(bad), bad

    lines = [f"{len(faults)} faults, {len({n for f in faults for n in f.failures})} of F1 to F60, "
             f"{len(kinds)} kinds."]  # fmt: skip
    for most, words in ((1, "first"), (3, "among the first three")):
        good, bad = within(most)
        missing = f" Not: {', '.join(bad)}." if bad else ""
        lines.append(
            f"The right cause is {words} for {good} of {len(kinds)} kinds "
            f"({100 * good / len(kinds):.0f} %).{missing}"
        )
    return lines


def sound_lines(rows: Sequence[Row]) -> list[str]:
    """The sound pairs, and whether any was accused."""
    lines = ["| sound pair | accept length | errors | other findings |", "|---|---|---|---|"]
    for row in rows:
        errors = [f[1] for f in row["findings"] if f[0] == "error"]
        others = [f"{f[1]}" for f in row["findings"] if f[0] != "error"]
        length = row["accept_length"]
        lines.append(
            f"| {row['name'].removeprefix(SOUND)} | {'-' if length is None else f'{length:.2f}'} | "
            f"{', '.join(errors) or 'none'} | {', '.join(others) or 'none'} |"
        )
    return lines


def write_measured(page: Path, text: str) -> None:
    """Put what was measured into a page, behind its mark; what stands before is kept."""
    kept = page.read_text(encoding="utf-8").partition(MARK)[0] if page.is_file() else ""
    page.write_text(f"{kept}{MARK}\n{text}\n", encoding="utf-8")


def main() -> None:
    """Run, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--requests", type=int, default=36)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--workload", default="default")
    parser.add_argument("--out", default="doctor-zoo")
    parser.add_argument("--markdown")
    args = parser.parse_args()
    faults = [f for f in every_fault() if not args.only or f.name in args.only]
    runner = Runner(args)
    rows = [runner.fault(fault) for fault in faults]
    parts = [*shares(faults, rows), "", *table(faults, rows)]
    if not args.only:
        parts += ["", *sound_lines(runner.sound())]
    text = "\n".join(parts)
    print(text)
    if args.markdown:
        write_measured(Path(args.markdown), text)


if __name__ == "__main__":
    main()

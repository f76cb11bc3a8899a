"""The run directory: everything that one run leaves behind.

=================== ==============================================================================
``run.json``        schema version, what was asked, the points, what was dropped and why, provenance
``blocks.jsonl``    one line per block of one arm; a block exists from the moment its line is whole
``inputs.jsonl``    each distinct request once, under a key; ``block`` says where it came first
``requests.jsonl``  one line per request and arm: times, chunks, output, finish; no derived figure
``steps.jsonl``     every verify step, while the run goes on; one line per block, one list per field
``steps.parquet``   the same when the run has ended
``gpu.csv``         samples of the GPUs, added to when a block is saved (gpu_samples.py)
``summary.csv`` ... reports, each replaced at once through :meth:`RunDir.write`
=================== ==============================================================================

A run that was killed is whole up to its last saved block; see :mod:`specbench.journal`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from specbench import folder
from specbench import run_json as record
from specbench.columns import steps_by_request
from specbench.config import load_strict
from specbench.errors import ConfigError, OutputError, SpecbenchError
from specbench.grown_file import append_lines
from specbench.journal import TEMPORARY, BlockLog, Entry, replacing, write_atomically
from specbench.request import Request
from specbench.rows import block_parts, row_request, row_trace, utf8
from specbench.steps_file import ARM_FIELDS, StepsFile, write_steps
from specbench.trace import ArmRun, Provenance

BlockKey = tuple[str, str, int, float, int]

_ALWAYS_OTHER = ("machine.load_average:", "machine.cpu_mhz:")


class RunDir:
    """One run on disk. Made by :meth:`create`, :meth:`resume` or :meth:`open`; a context manager.

    ``run_json`` is the content of ``run.json``. ``notes`` say what was left out or is different
    when a run was opened.
    """

    def __init__(self, path: Path, run_json: Mapping[str, Any], log: BlockLog) -> None:
        self.path = path
        self.run_json = run_json
        self._log = log
        self._notes: list[str] = []
        self._known: set[str] = set()

    @classmethod
    def create(cls, path: Path, run_json: Mapping[str, Any]) -> Self:
        """Begin a run in a folder that is new or empty, with every file open.

        Args:
            path: the folder; made with its parents when it is missing.
            run_json: ``asked`` (the configuration), ``points``, ``dropped`` and ``provenance``;
                dataclasses, enums and tuples are made plain. More keys may follow.

        Raises:
            OutputError: the folder holds something, cannot be written, or is being written to.
        """
        content = record.make_run_json(run_json)
        folder.make_empty(path)
        log = BlockLog(path, folder.PARTS, write=True)
        try:
            if not folder.unused(path):
                raise OutputError(f"another process has begun a run in {path}.")
            folder.clear(path)
            write_atomically(path / record.RUN_JSON, record.run_text(content))
        except BaseException:
            log.close()
            raise
        return cls(path, content, log)

    @classmethod
    def resume(cls, path: Path, run_json: Mapping[str, Any]) -> Self:
        """Go on with the run in ``path``, or begin one when there is none; ``notes`` say which.

        The provenance of each resumption is kept in ``run.json`` under ``resumed``.

        Raises:
            OutputError: what is asked now is not what the run was asked; the keys are listed.
        """
        if not path.is_dir() or folder.unused(path):
            run = cls.create(path, run_json)
            run._notes.append(f"nothing to resume in {path}: a new run was begun")
            return run
        before = record.read_run_json(path)
        now = record.make_run_json(run_json)
        record.refuse_other_run(before, now, path)
        log = BlockLog(path, folder.PARTS, write=True, moved=lambda: _moved(path))
        try:
            folder.clear(path)
            after = {**before, "resumed": [*before.get("resumed", []), now["provenance"]]}
            write_atomically(path / record.RUN_JSON, record.run_text(after))
            run = cls(path, after, log)
            run._known = {key for entry in log.entries for key, _ in run._inputs(entry)}
        except BaseException:
            log.close()
            raise
        for topic in ("software", "machine", "device"):
            old, new = (each["provenance"].get(topic, {}) for each in (before, now))
            found = record.differences(old, new, topic)
            run._notes += [
                f"resumed with other {line}" for line in found if not line.startswith(_ALWAYS_OTHER)
            ]
        return run

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a run to read it and to write reports; it may be finished, killed or going on.

        Raises:
            OutputError: there is no run, it is damaged, or another version wrote it.
        """
        run_json = record.read_run_json(path)
        log = BlockLog(path, folder.PARTS, write=False, moved=lambda: _moved(path))
        return cls(path, run_json, log)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the run's files."""
        return (*self._log.notes, *self._notes)

    @property
    def provenance(self) -> Provenance:
        """Of the run's first start."""
        source = f"{self.path / record.RUN_JSON}: provenance"
        try:
            return load_strict(Provenance, self.run_json["provenance"], source=source)
        except ConfigError as error:
            raise OutputError(error.what, expected=error.expected, todo=error.todo) from error

    def blocks(self) -> frozenset[BlockKey]:
        """(point_id, workload, batch_size, temperature, block) of every block that is saved."""
        return frozenset(_key(entry.head) for entry in self._log.entries)

    def save_block(self, arm: ArmRun) -> None:
        """Save one block of one arm; it is on disk when this returns.

        Raises:
            OutputError: the block is already there, or the run is not open for writing.
            RunError: the disk refuses; what was saved before is kept.
        """
        head = {name: getattr(arm, name) for name in (*ARM_FIELDS, "started_ns", "wall_ns")}
        if _key(head) in self.blocks():
            raise OutputError(f"block {_key(head)} is already saved in {self.path}.")
        entry = self._log.append(head, block_parts(arm.requests, self._known))
        self._known |= {key for key, _ in self._inputs(entry)}

    def iter_runs(self) -> Iterator[ArmRun]:
        """The saved blocks, one at a time, in the order in which they were saved.

        Raises:
            OutputError: a file is damaged; the message names it and the block.
        """
        steps = StepsFile(self.path / folder.STEPS)
        requests: dict[str, Request] = {}
        for entry in self._log.entries:
            try:
                requests |= {key: row_request(row) for key, row in self._inputs(entry)}
                rows = self._rows(entry, "requests")
                columns = self._columns(entry, steps)
                traces = [
                    row_trace(row, requests[row["request"]], its)
                    for row, its in zip(rows, steps_by_request(columns, len(rows)), strict=True)
                ]
                yield ArmRun(**entry.head, requests=tuple(traces))
            except OutputError:
                raise
            except (LookupError, TypeError, ValueError, OverflowError, SpecbenchError) as error:
                raise OutputError(
                    f"block {entry.seq} in {self.path} is not what schema {record.SCHEMA} says: "
                    f"{type(error).__name__}: {error}."
                ) from error

    def load_runs(self) -> list[ArmRun]:
        """All of :meth:`iter_runs`."""
        return list(self.iter_runs())

    def write(self, name: str, data: str | bytes) -> Path:
        """Replace the report file ``name`` at once and return its path.

        Raises:
            OutputError: it cannot be written, or the name is one of the run's own files.
        """
        path = self._report(name)
        write_atomically(path, data)
        return path

    def append(self, name: str, lines: str) -> None:
        """Add whole ``lines`` to the end of ``name``, such as ``gpu.csv``, and force them to disk.

        Raises:
            OutputError: as :meth:`write`.
        """
        append_lines(self._report(name), lines)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A temporary path, with the suffix of ``name``, that takes its place when all went well.

        Raises:
            OutputError: as :meth:`write`.
        """
        with replacing(self._report(name)) as temporary:
            yield temporary

    def finish(self) -> None:
        """Compact the steps into one columnar file and close the run for writing.

        A crash in the middle loses nothing: the journal goes only when the new file is on disk.
        Calling it again does nothing.

        Raises:
            OutputError: the file cannot be written; the journal is still there.
        """
        if not self._log.writable:
            return
        entries = self._log.entries
        steps = StepsFile(self.path / folder.STEPS)
        if steps.count < len(entries) or not steps.count:
            columns = (self._table(entry, steps) for entry in entries)
            write_steps(self.path / folder.STEPS, len(entries), columns)
        (self.path / "steps.jsonl").unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the run for writing without compacting it; it can be resumed."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _inputs(self, entry: Entry) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Key and row of the requests that came first in ``entry``."""
        for row in self._rows(entry, "inputs"):
            yield row["key"], row

    def _rows(self, entry: Entry, part: str) -> list[Any]:
        """The lines of ``entry`` in ``part``, parsed as one text."""
        lines = self._log.read(entry, part).splitlines()
        rows: list[Any] = json.loads(b"[%b]" % b",".join(lines))
        return rows

    def _columns(self, entry: Entry, steps: StepsFile) -> Mapping[str, Any]:
        """The step columns of ``entry``, from wherever they stand."""
        if entry.seq < steps.count:
            return steps.columns(entry.seq)
        columns: Mapping[str, Any] = json.loads(self._log.read(entry, "steps"))
        return columns

    def _table(self, entry: Entry, steps: StepsFile) -> dict[str, Any]:
        """The step columns of ``entry`` with its arm and the ids of its requests."""
        columns = dict(self._columns(entry, steps))
        ids = [row["id"] for row in self._rows(entry, "requests")]
        count = len(columns["request"])
        arm = {name: [entry.head[name]] * count for name in ARM_FIELDS}
        named = [utf8(ids[index]) for index in columns["request"]]
        return {**columns, **arm, "seq": [entry.seq] * count, "request_id": named}

    def _report(self, name: str) -> Path:
        if not name or name in folder.OURS or Path(name).name != name or name.startswith("."):
            raise OutputError(f"{name!r} cannot be the name of a report file.")
        return self.path / name


def check_folder(path: Path, *, resume: bool) -> None:
    """Try, before anything slow, whether a run can be begun or resumed in ``path``; makes it.

    Raises:
        OutputError: the folder holds something else than asked, or cannot be written.
    """
    if resume and path.is_dir() and not folder.unused(path):
        record.read_run_json(path)
    else:
        folder.make_empty(path)
    probe = path / f"{TEMPORARY}probe"
    write_atomically(probe, "")
    probe.unlink(missing_ok=True)


def _key(head: Mapping[str, Any]) -> BlockKey:
    point_id, workload, batch_size, temperature, block = (head[name] for name in ARM_FIELDS)
    return point_id, workload, batch_size, temperature, block


def _moved(path: Path) -> dict[str, int]:
    return {"steps": StepsFile(path / folder.STEPS).count}

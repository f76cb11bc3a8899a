"""The terminal view of ``specbench sweep --live``: the live page's figures, drawn with rich.

It draws at most once per ``interval_s`` from the event loop that runs the sweep, since a thread
would compete with the engine at moments that nobody controls; what it costs is the same for
every arm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.bar import Bar
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from specbench.backends.base import Event
from specbench.config import SpecConfig
from specbench.request import Request
from specbench.server.live import Figures, LiveTap
from specbench.server.shown import Flight
from specbench.sweep import Job
from specbench.trace import ArmRun, RequestTrace

# Colours and shapes of the live page: accepted ■ blue, bonus ◆ orange, rejected ✗ red.
MARKS = {
    "accepted": ("■", "dodger_blue1"),
    "cut": ("□", "dodger_blue1"),
    "bonus": ("◆", "orange1"),
    "rejected": ("✗", "red3"),
    "prefill": ("●", "grey50"),
}
PARTS = {"draft": "sky_blue1", "extend": "green3", "verify": "dodger_blue2", "other": "grey50"}
_SPARKS = "▁▂▃▄▅▆▇█"
_HISTORY_S = 60


class LiveView:
    """An observer of ``run_sweep`` that watches each block while it runs; a context manager."""

    def __init__(self, console: Console, *, interval_s: float = 1.0, outputs: int = 2) -> None:
        self._console = console
        self._interval_ns = int(interval_s * 1e9)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._tap = LiveTap(SpecConfig.baseline(), 1, most_outputs=outputs)
        self._flights: dict[str, Flight] = {}
        self._job: Job | None = None
        self._drawn_ns = self._start_ns = time.perf_counter_ns()
        self._jobs = self._done = self._done_before = 0

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def started(self, jobs: int, done: int) -> None:
        """Set the scale."""
        self._jobs, self._done, self._done_before = jobs, done, done
        self._draw()

    def began(self, job: Job) -> LiveView:
        """A block begins, whose figures start afresh; the view itself watches it."""
        self._tap.switch(job.point.spec, job.batch_size)
        self._job = job
        return self

    def event(self, request: Request, event: Event) -> None:
        """An event of a measured request has arrived."""
        flight = self._flights.get(request.request_id)
        if flight is None:
            flight = self._flights[request.request_id] = self._tap.begin(request.request_id)
        self._tap.see(flight, event)
        if time.perf_counter_ns() - self._drawn_ns >= self._interval_ns:
            self._draw()

    def trace(self, trace: RequestTrace) -> None:
        """A request has ended."""
        flight = self._flights.pop(trace.request.request_id, None)
        if flight is not None:
            self._tap.end(flight, trace.finish.value)

    def saved(self, job: Job, arm: ArmRun) -> None:
        """A block is on disk."""
        self._done += 1
        self._draw()

    def render(self, width: int) -> RenderableType:
        """The view as it stands, for a terminal of ``width`` columns."""
        state, _ = self._tap.state()
        seen = self._tap.figures()
        survival = Panel(_survival(seen), title="survival by draft position", title_align="left")
        split = Panel(_split(seen, max(10, width // 2 - 8)), title="step time", title_align="left")
        halves = Table.grid(expand=True)
        halves.add_column(ratio=1)
        halves.add_column(ratio=1)
        halves.add_row(survival, split)
        texts = [_output(row, width - 4) for row in reversed(state["outputs"])]
        outputs = Panel(
            Group(*texts, _legend()) if texts else Text("no request yet", style="grey50"),
            title="last outputs, by verify step",
            title_align="left",
        )
        return Group(self._head(), _tiles(state, seen, width), halves, outputs)

    def _head(self) -> RenderableType:
        """How far the sweep is, and what runs now."""
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(1, self._jobs), completed=self._done, width=24)
        line.add_row(bar, f"{self._done}/{self._jobs} blocks", self._left(), self._what())
        return line

    def _what(self) -> Text:
        job = self._job
        if job is None:
            return Text("loading")
        return Text.assemble(
            (job.point.point_id, "bold"),
            f"  batch {job.batch_size}  temperature {job.temperature:g}  {job.workload.name}  "
            f"block {job.block + 1}",
        )

    def _left(self) -> str:
        """Time left, if the blocks to come take as long as those of this session."""
        done = self._done - self._done_before
        if not done:
            return ""
        passed_s = (time.perf_counter_ns() - self._start_ns) / 1e9
        minutes, seconds = divmod(round(passed_s / done * (self._jobs - self._done)), 60)
        return f"{minutes}:{seconds:02d} left"

    def _draw(self) -> None:
        self._drawn_ns = time.perf_counter_ns()
        self._live.update(self.render(self._console.width), refresh=True)


def _tiles(state: dict[str, Any], seen: Figures, width: int) -> RenderableType:
    """The headline figures, and accept length over the last minute."""
    table = Table.grid(expand=True, padding=(0, 1))
    ended = ", ".join(f"{word} {n}" for word, n in state["ended"].items())
    step_ms = None if seen.parts_ms is None else sum(seen.parts_ms.values())
    cells = {
        "accept length": _known(seen.accept_length, ".2f"),
        "output": f"{state['tokens_per_s']:.0f} tok/s",
        "step": _known(step_ms, ".2f", " ms"),
        "running": str(state["running"]),
        "queued": str(state["queued"]),
        "ended": ended or "0",
    }
    for _ in cells:
        table.add_column()
    table.add_row(*(Text(name, style="grey50") for name in cells))
    table.add_row(*(Text(value, style="bold") for value in cells.values()))
    now = int(state["now"])
    lengths = {row["at"]: row["accept_length"] for row in state["seconds"]}
    history = [lengths.get(now - ago) for ago in range(min(_HISTORY_S, width - 32) - 1, -1, -1)]
    line = Text("accept length, last minute  ", style="grey50")
    line.append(spark(history, low=1.0, high=state["point"]["num_steps"] + 1.0), "dodger_blue1")
    return Panel(Group(table, line))


def spark(values: Sequence[float | None], *, low: float, high: float) -> str:
    """``values`` as a line of blocks; a dot where nothing was seen.

    >>> spark([1.0, None, 2.0, 4.0], low=1.0, high=4.0)
    '▁·▃█'
    """
    top = len(_SPARKS) - 1
    scale = top / (high - low) if high > low else 0.0
    return "".join(
        "·" if v is None else _SPARKS[min(top, max(0, round((v - low) * scale)))] for v in values
    )


def _known(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def _survival(seen: Figures) -> RenderableType:
    """One bar a position: what is still accepted there."""
    if not seen.survival:
        return Text("nothing drafted", style="grey50")
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(ratio=1)
    table.add_column(justify="right")
    for position, share in enumerate(seen.survival, start=1):
        bar = Bar(1.0, 0.0, share, color="dodger_blue1", bgcolor="grey23")
        table.add_row(str(position), bar, f"{share:.0%}")
    return table


def _split(seen: Figures, width: int) -> RenderableType:
    """One bar of four parts, and their milliseconds."""
    if seen.parts_ms is None:
        return Text("not timed here", style="grey50")
    whole = sum(seen.parts_ms.values()) or 1.0
    bar, table = Text(), Table.grid(expand=True, padding=(0, 1))
    for part, colour in PARTS.items():
        ms = seen.parts_ms[part]
        bar.append("█" * round(ms / whole * width), colour)
        table.add_row(Text("■ " + part, style=colour), f"{ms:.3f} ms", f"{ms / whole:.0%}")
    bar.no_wrap = True
    return Group(bar, table)


def _legend() -> Text:
    return Text("   ").join(
        Text(f"{mark} {name}", style=colour) for name, (mark, colour) in MARKS.items()
    )


def _output(row: dict[str, Any], width: int) -> RenderableType:
    """The end of one output: text, and under each step's text what became of its drafts."""
    head = Text(f"{row['id']}  {row['state']}  {row['tokens']} tokens", style="grey50")
    lines: list[tuple[Text, Text]] = [(Text(), Text())]
    for piece in row["pieces"]:
        text, marks = _piece(piece)
        size = max(text.cell_len, marks.cell_len) + 1
        if lines[-1][0].cell_len + size > width:
            lines.append((Text(), Text()))
        for line, part in zip(lines[-1], (text, marks), strict=True):
            line.append_text(part).append(" " * (size - part.cell_len))
    return Group(head, *(line for pair in lines[-2:] for line in pair))


def _piece(piece: dict[str, Any]) -> tuple[Text, Text]:
    """The text of one delivery, shaded by what it is made of, and its marks."""
    marks, took = Text(), False
    for step in piece["steps"]:
        took |= step["accepted"] > 0
        kept = min(step["accepted"], step["emitted"])
        _mark(marks, "accepted", kept)
        _mark(marks, "cut", step["accepted"] - kept)
        _mark(marks, "bonus", step["emitted"] - kept)
        _mark(marks, "rejected", step["depth"] - step["accepted"])
    if not piece["steps"]:
        _mark(marks, "prefill", piece["tokens"] or 1)
        return Text(_plain(piece["text"])), marks
    return Text(_plain(piece["text"]), style=MARKS["accepted" if took else "bonus"][1]), marks


def _mark(marks: Text, name: str, count: int) -> None:
    mark, colour = MARKS[name]
    marks.append(mark * count, colour)


def _plain(text: str) -> str:
    """One line without control characters, which a terminal would obey.

    >>> _plain("a\\nb\\x1b[2J")
    'a↵b�[2J'
    """
    shown = text.replace("\n", "↵")
    return "".join(
        c if c.isprintable() and cell_len(c) else "\N{REPLACEMENT CHARACTER}" for c in shown
    )

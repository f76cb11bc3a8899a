"""Mark a run in Grafana: its start, its end, and each block of a point. Never breaks a sweep.

Posts from a thread of its own, so that a slow Grafana does not hold up what is measured; after
the first failure nothing more is posted, and that is said once.
"""

from __future__ import annotations

import datetime as dt
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from specbench.dashboards.board import TAG
from specbench.dashboards.grafana import Grafana, token_from_environment
from specbench.errors import SpecbenchError
from specbench.trace import ArmRun

MOST_WAITING = 1000
LAST_WAIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One mark, or a span where ``until_ms`` is given; Unix time in milliseconds."""

    text: str
    tags: tuple[str, ...]
    at_ms: int
    until_ms: int | None = None


Post = Callable[[Annotation], None]


class Watching(Protocol):
    """What watches a sweep: ``sweep.Observer``, of which only this much is needed here."""

    def started(self, jobs: int, done: int) -> None:
        """``jobs`` blocks in all, of which ``done`` were there already."""
        ...

    def saved(self, job: Any, arm: ArmRun) -> None:
        """A block has been measured and is on disk."""
        ...


@contextmanager
def annotating(
    url: str | None, watching: Watching, *, run_id: str, say: Callable[[str], None]
) -> Iterator[Watching]:
    """An observer that tells ``watching`` everything and posts to Grafana, if there is one.

    Args:
        url: of Grafana; None yields ``watching`` itself.
        watching: sees what the observer sees.
        run_id: as in ``specbench_run_info``; the boards find annotations by the tag ``run:ID``.
        say: told once, when posting fails.

    Raises:
        ConfigError: the URL is not one, or there is no token.
    """
    if url is None:
        yield watching
        return
    with RunAnnotations(poster(url), watching, run_id=run_id, say=say) as annotations:
        yield annotations


def poster(url: str) -> Post:
    """What posts an annotation, for all boards, to the Grafana at ``url``; asks nothing yet.

    Raises:
        ConfigError: the URL is not one, or there is no token.
    """
    grafana = Grafana(url, token_from_environment(), timeout_s=5.0)

    def post(annotation: Annotation) -> None:
        with grafana.answering("posting an annotation"):
            grafana.face.annotations.add_annotation(
                time_from=annotation.at_ms,
                time_to=annotation.until_ms,
                tags=list(annotation.tags),
                text=annotation.text,
            )

    return post


class RunAnnotations:
    """An observer of a sweep; a context manager that posts the end of the run.

    Args:
        post: sends one annotation; raises SpecbenchError.
        watching: another observer, which is told first.
        run_id: names the run in texts and tags.
        say: told once, when posting fails.
    """

    def __init__(
        self, post: Post, watching: Watching, *, run_id: str, say: Callable[[str], None]
    ) -> None:
        self._watching = watching
        self._post = post
        self._tags = (TAG, f"run:{run_id}")
        self._run_id = run_id
        self._say = say
        self._waiting: queue.Queue[Annotation | None] = queue.Queue(MOST_WAITING)
        self._failed = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="annotations", daemon=True)

    def __enter__(self) -> RunAnnotations:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        how = "ended" if kind is None else f"stopped ({kind.__name__})"
        self._add(f"Run {self._run_id} {how}")
        self._put(None)
        self._thread.join(0 if self._failed.is_set() else LAST_WAIT_S)
        if self._thread.is_alive():
            self._fail("Grafana is too slow")

    def started(self, jobs: int, done: int) -> None:
        """Mark the start of the run."""
        self._watching.started(jobs, done)
        self._add(f"Run {self._run_id} started: {jobs} blocks, {done} of them there already")

    def saved(self, job: Any, arm: ArmRun) -> None:
        """Mark the span of a block: which point ran from when to when."""
        self._watching.saved(job, arm)
        self._add(
            f"{arm.point_id}, batch {arm.batch_size}, temperature {arm.temperature:g}, "
            f"{arm.workload}, block {arm.block}",
            f"point:{arm.point_id}",
            lasted_ms=arm.wall_ns // 1_000_000,
        )

    def _add(self, text: str, *tags: str, lasted_ms: int | None = None) -> None:
        now = _now_ms()
        begun = now if lasted_ms is None else now - lasted_ms
        until = None if lasted_ms is None else now
        self._put(Annotation(text=text, tags=(*self._tags, *tags), at_ms=begun, until_ms=until))

    def _put(self, mark: Annotation | None) -> None:
        """Hand over to the thread; None ends it. Never waits."""
        if self._failed.is_set():
            return
        try:
            self._waiting.put_nowait(mark)
        except queue.Full:
            self._fail(f"{MOST_WAITING} of them wait")

    def _work(self) -> None:
        while (mark := self._waiting.get()) is not None and not self._failed.is_set():
            try:
                self._post(mark)
            except SpecbenchError as error:
                self._fail(str(error))

    def _fail(self, why: str) -> None:
        """Say it and stop posting; whichever thread comes second says nothing."""
        with self._lock:
            first = not self._failed.is_set()
            self._failed.set()
        if first:
            self._say(f"Annotations are no longer posted, the run goes on: {why}")


def _now_ms() -> int:
    """Wall time, since Grafana knows no other; nothing is measured with it."""
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)

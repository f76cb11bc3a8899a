"""Where the ranks of one run meet, and how nothing of it is left, whatever ends rank 0.

Rank 0 holds the write end of a pipe to every follower. The kernel closes it with the process, a
kill -9 included, and a follower that reads its end goes, from whatever it waits for. The last thing
it does is to remove the folder. Where all ranks are killed at once the folder stays until the next
run: its lock, which the kernel drops as well, says that nobody uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

PREFIX = "specbench-ranks-"
LOCK = "rank-0"
YOUNG_S = 60.0  # a folder is made before its lock is held


class MeetingFolder:
    """A temporary folder that is this process's as long as it lives."""

    def __init__(self) -> None:
        """Make it, after those that dead processes left were removed."""
        remove_stale(Path(tempfile.gettempdir()))
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self._lock = (self.path / LOCK).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove it; also when a follower was faster."""
        self._lock.close()
        self._folder.cleanup()


def remove_stale(place: Path) -> None:
    """Remove the folders below ``place`` whose rank 0 is gone; what is another user's stays."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # BlockingIOError: its rank 0 lives
            if time.time() - folder.stat().st_mtime < YOUNG_S:  # noqa: TID251  # age of a file
                continue
            with (folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def end_with(lead: int, folder: Path) -> None:
    """End this process, and remove ``folder``, when the pipe ``lead`` is closed at its other end.

    The descriptor is read as such: a daemon thread must hold no lock of a stream at exit.
    """

    def wait() -> None:
        while os.read(lead, 1):
            pass
        if folder.name.startswith(PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write("specbench: a rank ends, since rank 0 is gone.\n")
        sys.stderr.flush()
        os._exit(3)  # the main thread may wait for a collective that never comes

    threading.Thread(target=wait, name="end with rank 0", daemon=True).start()

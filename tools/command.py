"""How a tool ends: exit codes and one clear line, as ``specbench`` has them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from specbench.errors import SpecbenchError


def run(name: str, work: Callable[[], None]) -> int:
    """Do ``work``; returns the exit code: 0 done, 2 wrong use, 3 it broke or was interrupted."""
    try:
        work()
    except SpecbenchError as error:
        return _refused(name, str(error), error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refused(name, f"{where}{error.strerror or error}.", 3)
    except MemoryError:
        return _refused(name, "The memory does not suffice.", 3)
    except KeyboardInterrupt:
        return _refused(name, "Interrupted.", 3)
    return 0


def _refused(name: str, text: str, code: int) -> int:
    said = text.encode(errors="backslashreplace").decode()
    sys.stderr.write(f"{name}: error: {said}\n")
    return code

"""How a tool ends: exit codes and one clear line, as ``specbench`` has them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable

from specbench.errors import ConfigError, SpecbenchError


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


def named_stages(text: str, known: Iterable[str]) -> list[str]:
    """The stages that ``--stage`` lists by commas.

    Raises:
        ConfigError: one is not ``known``.
    """
    names, stages = [name.strip() for name in text.split(",")], list(known)
    if unknown := [name for name in names if name not in stages]:
        near = difflib.get_close_matches(unknown[0], stages, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Stages are {', '.join(stages)}."
        raise ConfigError(f"--stage: unknown stage {unknown[0]!r}.", todo=hint)
    return names


def _refused(name: str, text: str, code: int) -> int:
    said = text.encode(errors="backslashreplace").decode()
    sys.stderr.write(f"{name}: error: {said}\n")
    return code

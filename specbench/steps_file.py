"""The steps of a finished run in one columnar file, ``steps.parquet``.

One row is one :class:`~specbench.trace.StepTrace`; beside its fields stand the arm that it belongs
to (``point_id``, ``workload``, ``batch_size``, ``temperature``, ``block``), the request's id, and
two keys: ``seq`` is the block's place in the journal, ``request`` the index of the request in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specbench.columns import COUNTS, STEP_FIELDS
from specbench.errors import OutputError
from specbench.journal import replacing

ARM_FIELDS = ("point_id", "workload", "batch_size", "temperature", "block")

_ROWS = 1 << 16  # of one row group
_BLOCKS = b"specbench_blocks"
_SMALL = pa.int32()
_TYPES = {
    "seq": _SMALL,
    "point_id": pa.string(),
    "workload": pa.string(),
    "batch_size": _SMALL,
    "temperature": pa.float64(),
    "block": _SMALL,
    "request": _SMALL,
    "request_id": pa.string(),
    **dict.fromkeys(STEP_FIELDS, pa.int64()),
    "ranks": pa.list_(_SMALL),
}


def write_steps(path: Path, count: int, blocks: Iterable[Mapping[str, Sequence[Any]]]) -> None:
    """Write the steps of the first ``count`` blocks of a run to ``path`` at once.

    Args:
        path: of the parquet file; replaced only when the new one is whole.
        count: number of blocks, also of those that have no steps.
        blocks: columns of each block, keyed as in ``_TYPES``, in the order of ``seq``; ranks may
            be a list a step, or as :meth:`StepsFile.columns` gives them.

    Raises:
        OutputError: the file cannot be written.
    """
    schema = pa.schema(list(_TYPES.items()), metadata={_BLOCKS: str(count).encode()})
    strings = [name for name, kind in _TYPES.items() if kind == pa.string()]
    with (
        replacing(path) as temporary,
        temporary.open("wb") as file,  # Arrow would take some paths for addresses
        pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=strings) as writer,
    ):
        pending = schema.empty_table()
        for columns in blocks:
            whole = {**columns, "ranks": _lists(columns["ranks"])}
            pending = pa.concat_tables([pending, pa.table(whole, schema=schema)])
            if pending.num_rows >= _ROWS:
                writer.write_table(pending)
                pending = schema.empty_table()
        if pending.num_rows:
            writer.write_table(pending)


def _lists(ranks: Any) -> Any:
    if not isinstance(ranks, tuple):
        return ranks
    ends, values = ranks
    inside = values[ends[0] : ends[-1]].astype(np.int32)
    return pa.ListArray.from_arrays((ends - ends[0]).astype(np.int32), inside)


def _array(column: pa.ChunkedArray) -> Any:
    """A column of one chunk as it lies in memory; ``to_numpy`` would import pandas."""
    return np.from_dlpack(column.chunk(0)) if len(column) else np.zeros(0, dtype=np.int64)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A parquet file read through Arrow's own file, on this thread alone.

    A Python file object given to Arrow's reading threads is released by them, at times only while
    the interpreter is going down, and that ends the process with SIGABRT.
    """
    with pa.OSFile(str(path)) as native, pq.ParquetFile(native) as file:
        yield file


class StepsFile:
    """``steps.parquet`` of a run, read once; ``count`` blocks stand in it, 0 when there is none.

    Raises:
        OutputError: the file is damaged or of another kind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: pa.Table | None = None
        self._starts: list[int] = []
        self.count = 0
        if not path.exists():
            return
        try:
            with _opened(path) as file:
                metadata = file.metadata.metadata or {}
            self.count = int(metadata[_BLOCKS])
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise self._damaged(error) from error

    def columns(self, seq: int) -> dict[str, Any]:
        """The step columns of block ``seq``, which is one of the first ``count``, as arrays.

        ``ranks`` is a pair: the ranks of step i are ``values[ends[i] : ends[i + 1]]``.
        """
        if self._table is None:
            try:
                with _opened(self._path) as file:
                    wanted = ["seq", "request", *STEP_FIELDS]
                    table = file.read(columns=wanted, use_threads=False)
                self._table = table.combine_chunks()
                rows = _array(self._table["seq"])
            except (pa.ArrowException, OSError, KeyError) as error:
                raise self._damaged(error) from error
            self._starts = rows.searchsorted(range(self.count + 1)).tolist()
        start, end = self._starts[seq], self._starts[seq + 1]
        part = self._table.slice(start, end - start)
        found: dict[str, Any] = {name: _array(part[name]) for name in ("request", *COUNTS)}
        lists = part["ranks"].combine_chunks()
        found["ranks"] = np.from_dlpack(lists.offsets), np.from_dlpack(lists.values)
        return found

    def _damaged(self, error: Exception) -> OutputError:
        return OutputError(
            f"{self._path} is damaged: {str(error).rstrip('.')}.",
            expected="Steps in columns, as this program writes them.",
            todo="Restore the file from a copy, or measure again in a new folder.",
        )

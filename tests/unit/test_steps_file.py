from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specbench import steps_file
from specbench.columns import STEP_FIELDS, steps_by_request
from specbench.errors import OutputError
from specbench.rows import step_columns
from specbench.steps_file import StepsFile, write_steps
from specbench.trace import StepTrace


def block(seq: int, rows: int) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        name: [seq * 10 + i for i in range(rows)] for name in STEP_FIELDS
    }
    columns["ranks"] = [[0] * i for i in range(rows)]
    arm = {"point_id": "k2", "workload": "w", "batch_size": 1, "temperature": 0, "block": seq}
    named = {"seq": seq, "request": 0, "request_id": "a#0", **arm}
    return {**columns, **{name: [value] * rows for name, value in named.items()}}


def test_steps_come_back_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_file, "_ROWS", 4)
    path = tmp_path / "steps.parquet"
    sizes = [3, 0, 2, 5, 0]
    write_steps(path, len(sizes), (block(seq, rows) for seq, rows in enumerate(sizes)))
    steps = StepsFile(path)
    assert steps.count == 5
    for seq, rows in enumerate(sizes):
        columns = steps.columns(seq)
        ends, ranks = columns["ranks"]
        assert columns["committed"].tolist() == block(seq, rows)["committed"]
        assert [ranks[a:b].tolist() for a, b in pairwise(ends)] == block(seq, rows)["ranks"]
    assert pq.ParquetFile(path).metadata.num_row_groups == 2
    assert list(tmp_path.iterdir()) == [path]


def test_large_times_keep_every_nanosecond(tmp_path: Path) -> None:
    step = StepTrace(
        batch_step=2**40,
        batch=1,
        committed=1,
        drafted=2,
        depth=2,
        accepted=1,
        emitted=1,
        ranks=(1,),
        draft_ns=2**53 + 1,
        other_ns=2**62 + 1,
    )
    columns = {**block(0, 1), **{name: [getattr(step, name)] for name in STEP_FIELDS}}
    write_steps(tmp_path / "s.parquet", 1, [columns])
    assert steps_by_request(StepsFile(tmp_path / "s.parquet").columns(0), 1) == [(step,)]


def test_no_file_holds_no_blocks(tmp_path: Path) -> None:
    assert StepsFile(tmp_path / "steps.parquet").count == 0
    write_steps(tmp_path / "steps.parquet", 0, [])
    assert StepsFile(tmp_path / "steps.parquet").count == 0


def test_damage_is_an_output_error(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    write_steps(path, 1, [block(0, 50)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(OutputError, match="is damaged"):
        StepsFile(path)
    path.write_bytes(whole[:4] + b"\xff" * 400 + whole[404:])
    with pytest.raises(OutputError, match="is damaged"):
        StepsFile(path).columns(0)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    write_steps(path, 1, [block(0, 2)])
    before = path.read_bytes()

    def broken() -> Any:
        yield block(0, 2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_steps(path, 2, broken())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert set(step_columns([])) <= set(pq.read_schema(path).names)


@pytest.mark.parametrize("name", ["s3:x", "a%20b"])
def test_a_path_is_never_an_address(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name) / "steps.parquet"
    path.parent.mkdir()
    write_steps(path, 1, [block(0, 2)])
    assert len(StepsFile(path).columns(0)["request"]) == 2


def test_arrow_reads_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python file would be released by Arrow's threads, which abort a process that is ending."""
    path, given = tmp_path / "s.parquet", []
    write_steps(path, 1, [block(0, 3)])
    monkeypatch.setattr(pq, "read_table", None)
    opened = pq.ParquetFile

    def spy(source: object) -> pq.ParquetFile:
        given.append(source)
        return opened(source)

    monkeypatch.setattr(pq, "ParquetFile", spy)
    StepsFile(path).columns(0)
    assert [type(source) for source in given] == [pa.OSFile, pa.OSFile]

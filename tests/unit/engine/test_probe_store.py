"""The index of a dump is read as strictly as it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from specbench.engine.probe_store import (
    FORMAT,
    INDEX,
    VERSION,
    Index,
    Layout,
    StoredText,
    read_index,
    read_stored,
)
from specbench.errors import WorkloadError

TEXT = StoredText(
    number=0,
    file="features-00000.safetensors",
    request_id="r",
    category="",
    prompt_len=2,
    output_len=3,
)


def dumped(folder: Path, **tensors: torch.Tensor) -> Index:
    """A dump of one text of five tokens and one layer, without a model."""
    held = {
        "0.input_ids": torch.arange(5),
        "0.loss_mask": torch.tensor([0, 0, 1, 1, 1]),
        "0.hidden.1": torch.ones(5, 4),
        "0.last_pre_norm": torch.ones(5, 4),
        "0.last_post_norm": torch.ones(5, 4),
    }
    held |= {f"0.{name}": value for name, value in tensors.items()}
    save_file(held, folder / TEXT.file)
    index = Index(
        layout=Layout.SPECBENCH,
        layers=(1,),
        n_layers=2,
        hidden=4,
        vocab=9,
        dtype="float32",
        past=1,
        shard_bytes=1000,
        inputs={"model.safetensors": "00"},
        prompts="00",
        texts=1,
        shards={TEXT.file: (folder / TEXT.file).stat().st_size},
        stored=(TEXT,),
    )
    index.write(folder)
    return index


def test_what_was_written_is_read(tmp_path: Path) -> None:
    index = dumped(tmp_path)
    assert read_index(tmp_path) == index
    raw, sample = read_stored(tmp_path, index, TEXT, (1,))
    assert (raw.tokens, raw.mask, sample.output_len) == (
        (0, 1, 2, 3, 4),
        (False, False, True, True, True),
        3,
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden": "x"}, "hidden='x' is a str. A int."),
        ({"hidden": 0}, "a size of it is none"),
        ({"vocab": None}, "vocab=None"),
        ({"n_layers": 2.0}, "n_layers=2.0 is a float"),
        ({"past": True}, "past=True is a bool"),
        ({"past": -1}, "a size of it is none"),
        ({"dtype": 32}, "dtype=32"),
        ({"layers": "1"}, "layers='1' is a str"),
        ({"layers": ["1"]}, "layers='1' is a str"),
        ({"layers": []}, "a size of it is none"),
        ({"layers": [3]}, "layers [3] lie outside 0..2"),
        ({"layout": "vllm"}, "layout='vllm' is unknown"),
        ({"texts": "many"}, "texts='many'"),
        ({"shards": []}, "shards=[] is a list. A table."),
        ({"shards": {TEXT.file: "1"}}, f"shards.{TEXT.file}='1' is a str. A int."),
        ({"shards": {}}, f"shards lacks {TEXT.file}"),
        ({"inputs": "x"}, "inputs='x' is a str. A table."),
        ({"inputs": {"model.safetensors": 0}}, "inputs.model.safetensors=0 is a int. A str."),
        ({"stored": {}}, "stored={} is a dict"),
        ({"stored": ["x"]}, "stored holds a str"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    dumped(tmp_path)
    table = json.loads((tmp_path / INDEX).read_text())
    assert (table["format"], table["version"]) == (FORMAT, VERSION)
    (tmp_path / INDEX).write_text(json.dumps(table | change))
    with pytest.raises(WorkloadError, match="is not well formed") as refused:
        read_index(tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("input_ids", torch.ones(5), "0.input_ids is float32 [5]. Whole numbers"),
        ("loss_mask", torch.arange(5), "0.loss_mask is int64 [5]. Zeros and ones"),
        ("hidden.1", torch.ones(5, 4).int(), "text 0: stream 0 is int32 [5, 4]"),
    ],
)
def test_a_tensor_of_a_wrong_type_is_named(
    tmp_path: Path, name: str, value: torch.Tensor, said: str
) -> None:
    index = dumped(tmp_path, **{name: value})
    with pytest.raises(WorkloadError) as refused:
        read_stored(tmp_path, index, TEXT, (1,))
    assert said in str(refused.value)

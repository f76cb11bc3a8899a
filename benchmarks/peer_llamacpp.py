"""llama.cpp for benchmarks/engine.py: PYTHON peer_llamacpp.py TARGET_DIR (needs xllamacpp, gguf).

Runs under an interpreter of its own. It writes the target as a float32 GGUF, starts llama.cpp's
server with one thread, and answers each line of JSON on stdin ({"prompt": ids, "tokens": n}) with
one on stdout ({"ids": [...], "seconds": s}). Only Llama checkpoints are written.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

PORT = 18931
KINDS = {"F16": np.float16, "F32": np.float32}


def read_tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors of a safetensors file as float32."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data, KINDS[entry["dtype"]], offset=8 + size + entry["data_offsets"][0],
                            count=int(np.prod(entry["shape"])))
        .reshape(entry["shape"]).astype(np.float32)
        for name, entry in header.items()
    }  # fmt: skip


def write_gguf(folder: Path, path: Path) -> None:
    """The checkpoint in ``folder`` as a float32 GGUF; llama.cpp rotates neighbouring pairs."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, folder, config)
    tensors = read_tensors(folder / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in tensors.items():
        for part, count in (("q_proj", heads), ("k_proj", kv)):
            if part in name:
                halves = tensor.reshape(count, 2, -1, tensor.shape[1])
                tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
        writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    """Byte-level BPE; prompts are ids, so it only has to load."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = dict(tokenizer["model"]["vocab"])
    added = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    by_id = {i: token for token, i in (vocab | added).items()}
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([by_id.get(i, f"[unused{i}]") for i in range(size)])
    writer.add_token_types([3 if i in added.values() else 1 for i in range(size)])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(config["bos_token_id"])
    end = config["eos_token_id"]
    writer.add_eos_token_id(end[0] if isinstance(end, list) else end)


def complete(case: dict[str, Any]) -> dict[str, Any]:
    """One request; wall time from sending it to its last byte."""
    body = {
        "prompt": case["prompt"], "n_predict": case["tokens"], "temperature": 0.0,
        "cache_prompt": False, "return_tokens": True, "samplers": ["top_k"],
        "top_k": 1,
    }  # fmt: skip
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    begun = time.perf_counter_ns()
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.loads(answer.read())
    seconds = (time.perf_counter_ns() - begun) / 1e9
    return {"ids": found["tokens"], "seconds": seconds}


def main() -> None:
    """Serve lines until stdin ends."""
    import xllamacpp

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "target.gguf"
        write_gguf(Path(sys.argv[1]), path)
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel = 1024, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.hostnames, params.port = ["127.0.0.1"], PORT
        server = xllamacpp.Server(params)
        for line in sys.stdin:
            sys.stdout.write(json.dumps(complete(json.loads(line))) + "\n")
            sys.stdout.flush()
        del server


if __name__ == "__main__":
    main()

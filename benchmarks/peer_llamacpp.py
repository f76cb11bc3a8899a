"""llama.cpp for benchmarks/engine.py: PYTHON peer_llamacpp.py TARGET_DIR [DRAFT_DIR STEPS].

Runs under an interpreter of its own, which has xllamacpp and gguf. It writes the target, and the
EAGLE-3 draft if one is given, as float32 GGUFs, starts llama.cpp's server with one thread, says
{"ready": true} on stdout, and then answers each line of JSON on stdin ({"cases": [{"prompt": ids,
"tokens": n}, ...]}) with one on stdout ({"ids": [[...], ...], "seconds": s}): all cases of a line
are sent together. Only Llama checkpoints are written.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

MOST_TOGETHER, ROOM = 8, 1024  # requests, and tokens of each
KINDS = {"F16": np.float16, "F32": np.float32, "I64": np.int64, "BOOL": np.bool_}
DRAFT_NAMES = {
    "fc": "fc", "norm": "output_norm", "lm_head": "output",
    "midlayer.input_layernorm": "blk.0.attn_norm", "midlayer.hidden_norm": "blk.0.attn_norm_2",
    "midlayer.post_attention_layernorm": "blk.0.ffn_norm",
    **{f"midlayer.self_attn.{a}_proj": f"blk.0.attn_{b}"
       for a, b in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))},
    **{f"midlayer.mlp.{name}_proj": f"blk.0.ffn_{name}" for name in ("gate", "up", "down")},
}  # fmt: skip


def read_tensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors of a safetensors file: floats as float32, the others as they are."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: _wide(np.frombuffer(data, KINDS[entry["dtype"]], count=int(np.prod(entry["shape"])),
                                  offset=8 + size + entry["data_offsets"][0]))
        .reshape(entry["shape"])
        for name, entry in header.items()
    }  # fmt: skip


def _wide(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values.astype(np.float32) if values.dtype.kind == "f" else values


def open_gguf(folder: Path, path: Path, kind: str) -> tuple[Any, dict[str, Any]]:
    """A writer with what a Llama layer's config says, and the config."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    return writer, config


def in_pairs(name: str, tensor: np.ndarray[Any, Any], config: dict[str, Any]) -> Any:
    """Rows of query and key projections as llama.cpp rotates them: neighbouring pairs."""
    for part, count in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
        if part in name:
            halves = tensor.reshape(config[count], 2, -1, tensor.shape[1])
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
    return np.ascontiguousarray(tensor)


def close_gguf(writer: Any) -> None:
    """Write everything."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_target(folder: Path, path: Path) -> None:
    """The checkpoint in ``folder`` as a float32 GGUF."""
    import gguf

    writer, config = open_gguf(folder, path, "llama")
    add_tokenizer(writer, folder, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in read_tensors(folder / "model.safetensors").items():
        writer.add_tensor(names.get_name(name, (".weight",)), in_pairs(name, tensor, config))
    close_gguf(writer)


def write_draft(folder: Path, target: Path, path: Path) -> None:
    """The EAGLE-3 draft as a float32 GGUF: llama.cpp counts layers by their input, so ids + 1."""
    writer, config = open_gguf(folder, path, "eagle3")
    add_tokenizer(writer, target, json.loads((target / "config.json").read_text()))
    ids = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    writer.add_array("eagle3.target_layers", [i + 1 for i in ids])
    writer.add_uint32("eagle3.target_hidden_size", config["target_hidden_size"])
    writer.add_bool("eagle3.norm_before_residual", config.get("norm_before_residual", False))
    writer.add_bool("eagle3.norm_before_fc", config.get("norm_before_fc", False))
    for name, tensor in read_tensors(folder / "model.safetensors").items():
        if name == "d2t":
            writer.add_tensor("d2t", tensor + np.arange(len(tensor)))  # ids, not offsets
        elif name != "t2d":
            own = DRAFT_NAMES[name.removesuffix(".weight")] + ".weight"
            writer.add_tensor(own, in_pairs(name, tensor, config))
    close_gguf(writer)


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


def start(target: Path, drafted: list[str], scratch: Path) -> tuple[Any, int]:
    """The running server and its port."""
    import xllamacpp

    write_target(target, scratch / "target.gguf")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    params = xllamacpp.CommonParams()
    params.model.path = str(scratch / "target.gguf")
    params.n_ctx, params.n_parallel = MOST_TOGETHER * ROOM, MOST_TOGETHER
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.hostnames, params.port = ["127.0.0.1"], port
    if drafted:
        folder, steps = Path(drafted[0]), int(drafted[1])
        write_draft(folder, target, scratch / "draft.gguf")
        draft, kinds = params.speculative.draft, xllamacpp.common_speculative_type
        draft.mparams.path = str(scratch / "draft.gguf")
        draft.n_max, draft.p_min = steps, 0.0
        draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = 1
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_EAGLE3]
    return xllamacpp.Server(params), port


def complete(port: int, case: dict[str, Any]) -> dict[str, Any]:
    """One request."""
    body = {
        "prompt": case["prompt"], "n_predict": case["tokens"], "temperature": 0.0,
        "cache_prompt": False, "return_tokens": True, "samplers": ["top_k"],
        "top_k": 1,
    }  # fmt: skip
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def together(port: int, cases: list[dict[str, Any]], pool: ThreadPoolExecutor) -> dict[str, Any]:
    """All cases at once; wall time from sending the first to the last byte of the last."""
    begun = time.perf_counter_ns()
    found = list(pool.map(lambda case: complete(port, case), cases))
    seconds = (time.perf_counter_ns() - begun) / 1e9
    return {"ids": [one["tokens"] for one in found], "seconds": seconds}


def main() -> None:
    """Serve lines until stdin ends."""
    target, *drafted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(MOST_TOGETHER) as pool:
        server, port = start(Path(target), drafted, Path(scratch))
        sys.stdout.write(json.dumps({"ready": True}) + "\n")
        sys.stdout.flush()
        for line in sys.stdin:
            answer = together(port, json.loads(line)["cases"], pool)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        del server


if __name__ == "__main__":
    main()

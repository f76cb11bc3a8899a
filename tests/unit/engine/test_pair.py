"""Loading a pair: what is resolved, what is recorded, what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from specbench.config import EngineConfig
from specbench.engine.pair import ModelPair, resolve_device
from specbench.errors import CheckpointError, ConfigError
from tests.tiny import shared_pair, write_pair


def test_facts_and_hashes_are_recorded() -> None:
    pair = shared_pair()
    loaded = ModelPair.load(pair.target, pair.draft, EngineConfig(max_len=512))
    facts = loaded.device_facts
    assert facts["device"] == facts["compute_capability"] == "cpu"
    assert facts["attention"] in ("native", "bmm+softmax")
    assert (facts["dtype"], facts["weights"], facts["threads"]) == ("float32", "float32", "1")
    model = (pair.draft / "model.safetensors").read_bytes()
    assert loaded.inputs["sha256:draft/model.safetensors"] == hashlib.sha256(model).hexdigest()
    assert {"sha256:target/config.json", "sha256:tokenizer/chat_template.jinja"} <= set(
        loaded.inputs
    )
    assert loaded.inputs["path:target"] == str(pair.target)


def test_a_target_can_be_loaded_alone() -> None:
    loaded = ModelPair.load(shared_pair().target, None, EngineConfig(max_len=512))
    assert loaded.draft is None
    assert loaded.draft_spec is None
    assert loaded.target.capture == ()


def test_auto_is_resolved() -> None:
    device, dtype = resolve_device(EngineConfig(device="cpu"), "bfloat16")
    assert (device.type, dtype) == ("cpu", torch.float32)
    with pytest.raises(ConfigError, match="device='tpu'"):
        resolve_device(EngineConfig(device="tpu"), "float32")


def test_a_cuda_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    device, dtype = resolve_device(EngineConfig(device="cuda:1"), "bfloat16")
    assert (str(device), dtype) == ("cuda:1", torch.bfloat16)
    with pytest.raises(ConfigError, match=r"device='cuda:2', of 2 CUDA devices. cuda:0 to cuda:1."):
        resolve_device(EngineConfig(device="cuda:2"), "bfloat16")


def test_max_len_beyond_the_rope_table_is_refused() -> None:
    pair = shared_pair()
    with pytest.raises(ConfigError, match=r"max_len=4096 exceeds .* 2048"):
        ModelPair.load(pair.target, pair.draft, EngineConfig(max_len=4096))


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    path = pair.target / "tokenizer.json"
    table = json.loads(path.read_text())
    extra = {"id": 300, "content": "<x>", "special": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    table["added_tokens"] += [
        {**extra, **flags, "id": 260 + i, "content": f"<x{i}>"} for i in range(40)
    ]
    path.write_text(json.dumps(table))
    with pytest.raises(CheckpointError, match="tokenizer has 300 ids"):
        ModelPair.load(pair.target, None, EngineConfig(max_len=512))

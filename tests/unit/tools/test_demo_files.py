"""The shipped pair: shapes, mapping, sizes, hashes, and agreement with transformers."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file  # noqa: E402

from tools.demo_pair.export import load_pair  # noqa: E402

DEMO = Path(__file__).resolve().parents[3] / "specbench" / "demo"
LIMIT = 25_000_000


def _config(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEMO / part / "config.json").read_text(encoding="utf-8"))
    return found


def _tensors(part: str) -> dict[str, Any]:
    found: dict[str, Any] = load_file(str(DEMO / part / "model.safetensors"))
    return found


def test_both_files_together_are_small() -> None:
    sizes = [(DEMO / part / "model.safetensors").stat().st_size for part in ("target", "draft")]
    assert sum(sizes) <= LIMIT


def test_target_tensors_have_llama_names_and_shapes() -> None:
    shapes = {name: tuple(value.shape) for name, value in _tensors("target").items()}
    config = _config("target")
    layer = {
        "input_layernorm.weight": (256,),
        "self_attn.q_proj.weight": (256, 256),
        "self_attn.k_proj.weight": (128, 256),
        "self_attn.v_proj.weight": (128, 256),
        "self_attn.o_proj.weight": (256, 256),
        "post_attention_layernorm.weight": (256,),
        "mlp.gate_proj.weight": (704, 256),
        "mlp.up_proj.weight": (704, 256),
        "mlp.down_proj.weight": (256, 704),
    }
    expected = {
        f"model.layers.{index}.{name}": shape
        for index in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }
    expected |= {"model.embed_tokens.weight": (4096, 256), "model.norm.weight": (256,)}
    assert shapes == expected


def test_draft_tensors_have_eagle3_names_and_shapes() -> None:
    shapes = {name: tuple(value.shape) for name, value in _tensors("draft").items()}
    size = _config("draft")["draft_vocab_size"]
    assert shapes == {
        "fc.weight": (256, 768),
        "midlayer.input_layernorm.weight": (256,),
        "midlayer.hidden_norm.weight": (256,),
        "midlayer.self_attn.q_proj.weight": (256, 512),
        "midlayer.self_attn.k_proj.weight": (128, 512),
        "midlayer.self_attn.v_proj.weight": (128, 512),
        "midlayer.self_attn.o_proj.weight": (256, 256),
        "midlayer.post_attention_layernorm.weight": (256,),
        "midlayer.mlp.gate_proj.weight": (704, 256),
        "midlayer.mlp.up_proj.weight": (704, 256),
        "midlayer.mlp.down_proj.weight": (256, 704),
        "norm.weight": (256,),
        "lm_head.weight": (size, 256),
        "d2t": (size,),
        "t2d": (4096,),
    }


def test_weights_are_half_precision_and_maps_are_not() -> None:
    for part in ("target", "draft"):
        for name, value in _tensors(part).items():
            kinds = {"d2t": torch.int64, "t2d": torch.bool}
            assert value.dtype == kinds.get(name, torch.float16), name
            assert bool(torch.isfinite(value.float()).all()), name


def test_d2t_holds_offsets_that_agree_with_t2d() -> None:
    tensors = _tensors("draft")
    ids = torch.arange(len(tensors["d2t"])) + tensors["d2t"]
    assert bool((ids[1:] > ids[:-1]).all())
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], ids)


def test_draft_configuration_names_the_layers_below_the_features() -> None:
    eagle = _config("draft")["eagle_config"]
    assert eagle == {"eagle_aux_hidden_state_layer_ids": [1, 3, 6], "use_aux_hidden_state": True}
    assert load_pair(DEMO)[0].shape.capture == (2, 4, 7)


@pytest.mark.parametrize("part", ["target", "draft"])
def test_hashes_are_those_of_the_card(part: str) -> None:
    card = (DEMO / part / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| `([\w.]+)` \| (\d+) \| `([0-9a-f]{64})` \|", card)
    assert len(rows) >= 2
    for name, size, digest in rows:
        data = (DEMO / part / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (int(size), digest), name


def test_card_figures_are_those_of_the_evaluation() -> None:
    rows = json.loads((DEMO / "draft" / "evaluation.json").read_text(encoding="utf-8"))
    card = (DEMO / "draft" / "README.md").read_text(encoding="utf-8")
    for row in rows:
        line = " | ".join(f"{value:.2f}" for value in row["accept_length"].values())
        assert f"| {row['category']} | {line} |" in card


def test_chain_of_five_commits_three_tokens_a_pass() -> None:
    rows = json.loads((DEMO / "draft" / "evaluation.json").read_text(encoding="utf-8"))
    assert rows[0]["accept_length"]["5"] >= 3.0


def test_at_most_one_output_in_ten_loops_in_any_category() -> None:
    rows = json.loads((DEMO / "draft" / "evaluation.json").read_text(encoding="utf-8"))
    for row in rows[1:]:
        assert row["looping"] * 10 <= row["prompts"], row["category"]


def test_logits_and_features_agree_with_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.LlamaForCausalLM.from_pretrained(DEMO / "target", dtype=torch.float32)
    target, _, _ = load_pair(DEMO)
    torch.manual_seed(0)
    ids = torch.randint(5, 4096, (2, 40))
    with torch.no_grad():
        expected = reference(ids, output_hidden_states=True)
        hidden, features = target.hidden(ids)
    torch.testing.assert_close(target.logits(hidden), expected.logits, atol=1e-4, rtol=0)
    wanted = torch.cat([expected.hidden_states[k] for k in (2, 4, 7)], dim=-1)
    torch.testing.assert_close(features, wanted, atol=1e-4, rtol=0)


def test_tokenizer_loads_and_renders_the_chat_format() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO / "target")
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 12 + 7?"},
        {"role": "assistant", "content": "19"},
        {"role": "user", "content": "Thanks!"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|endoftext|><|system|>Be brief.<|end|><|user|>What is 12 + 7?<|assistant|>19<|end|>"
        "<|user|>Thanks!<|assistant|>"
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12", add_special_tokens=False)) == [
        "1",
        "2",
    ]

"""Tiny model pairs on disk, made in a blink: random ones, and one whose draft has real skill.

The skilled draft is built by hand, not trained. Its attention is so sharp that a row sees only
itself, its values replace the row's state by the embedding of its own token, and its head is the
target's. It therefore knows which token the target's embedding alone would lead to. The target
adds random attention and MLP outputs to that (``noise``), so the draft is right often, not always.
"""

from __future__ import annotations

import atexit
import functools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIALS = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny pair. ``vocab`` counts 256 bytes and the special tokens; rest is unused."""

    vocab: int = 288
    hidden: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    inner: int = 96
    draft_vocab: int = 272
    capture: tuple[int, ...] = (1, 2, 3)
    max_positions: int = 2048
    theta: float = 10000.0
    eps: float = 1e-5
    tied: bool = False


DEMO_SHAPE = TinyShape(
    vocab=4096, hidden=256, layers=8, heads=4, kv_heads=2, head_dim=64, inner=704,
    draft_vocab=1024, capture=(2, 4, 7), tied=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyPair:
    """Folders of a written pair."""

    target: Path
    draft: Path
    shape: TinyShape


def write_pair(
    folder: Path,
    shape: TinyShape | None = None,
    *,
    seed: int = 0,
    noise: float = 0.15,
    skilled: bool = True,
    eos: int | None = None,
    stored: torch.dtype = torch.float32,
) -> TinyPair:
    """Write target and draft in Hugging Face and SpecForge layout.

    ``skilled`` needs hidden = kv_heads · head_dim. ``eos`` None lets nothing stop a request but
    max_tokens (the id named in config.json is then one that the head can't reach). ``stored`` is
    the dtype of the files.
    """
    shape = shape or TinyShape()
    generator = torch.Generator().manual_seed(seed)
    target = target_tensors(shape, generator, noise)
    draft = draft_tensors(shape, generator, target, skilled=skilled)
    pair = TinyPair(target=folder / "target", draft=folder / "draft", shape=shape)
    unreachable = shape.vocab - 1
    head = target["model.embed_tokens.weight" if shape.tied else "lm_head.weight"]
    if not shape.tied:
        head[unreachable] = 0.0
    target, draft = (
        {n: t.to(stored) if t.is_floating_point() else t for n, t in tensors.items()}
        for tensors in (target, draft)
    )
    write_folder(pair.target, target_config(shape, unreachable if eos is None else eos), target)
    write_folder(pair.draft, draft_config(shape), draft)
    write_tokenizer(pair.target)
    return pair


@functools.cache
def shared_pair(
    shape: TinyShape | None = None, *, seed: int = 0, noise: float = 0.15, skilled: bool = True
) -> TinyPair:
    """A pair that the whole test run may read; its folder goes when the process ends."""
    holder = tempfile.TemporaryDirectory()
    atexit.register(holder.cleanup)
    return write_pair(Path(holder.name), shape, seed=seed, noise=noise, skilled=skilled)


def target_config(shape: TinyShape, eos: int) -> dict[str, Any]:
    """config.json of a Llama target."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_positions,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "bos_token_id": None,
        "eos_token_id": eos,
        "torch_dtype": "float32",
    }


def draft_config(shape: TinyShape) -> dict[str, Any]:
    """config.json of a SpecForge draft: its X means physical X + 1."""
    return {
        **target_config(shape, 0),
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": shape.draft_vocab,
        "tie_word_embeddings": False,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [k - 1 for k in shape.capture],
            "use_aux_hidden_state": True,
        },
    }


def target_tensors(shape: TinyShape, generator: torch.Generator, noise: float) -> dict[str, Tensor]:
    """Random weights; ``noise`` scales what the layers add to the embedding."""

    def new(*size: int, std: float = 1.0) -> Tensor:
        return torch.randn(size, generator=generator) * std

    h, q = shape.hidden, shape.heads * shape.head_dim
    tensors = {"model.embed_tokens.weight": _unit_embedding(new(shape.vocab, h))}
    for i in range(shape.layers):
        at = f"model.layers.{i}"
        tensors |= _layer(at, shape, new, h)
        tensors[f"{at}.self_attn.o_proj.weight"] = new(h, q, std=noise * q**-0.5)
        tensors[f"{at}.mlp.down_proj.weight"] = new(h, shape.inner, std=noise * shape.inner**-0.5)
    tensors["model.norm.weight"] = 1 + new(h, std=0.1)
    if not shape.tied:
        tensors["lm_head.weight"] = new(shape.vocab, h)
    return tensors


def _unit_embedding(rows: Tensor) -> Tensor:
    """Rows of mean square 1 whose first value is 1: a constant that sharp attention can use."""
    rest = rows[:, 1:]
    rest = rest * ((rows.shape[1] - 1) / rest.pow(2).sum(-1, keepdim=True)).sqrt()
    return torch.cat([torch.ones_like(rows[:, :1]), rest], 1)


def draft_tensors(
    shape: TinyShape, generator: torch.Generator, target: dict[str, Tensor], *, skilled: bool
) -> dict[str, Tensor]:
    """Weights of a SpecForge draft; skilled as the module says, or random."""

    def new(*size: int, std: float = 1.0) -> Tensor:
        return torch.randn(size, generator=generator) * std

    h, width = shape.hidden, len(shape.capture) * shape.hidden
    ids = torch.randperm(shape.vocab, generator=generator)[: shape.draft_vocab].sort()[0]
    head = target["model.embed_tokens.weight" if shape.tied else "lm_head.weight"]
    tensors = {
        "fc.weight": new(h, width, std=width**-0.5),
        **_layer("midlayer", shape, new, 2 * h),
        "midlayer.hidden_norm.weight": 1 + new(h, std=0.1),
        "norm.weight": target["model.norm.weight"].clone(),
        "lm_head.weight": head[ids].clone(),
        "d2t": ids - torch.arange(shape.draft_vocab),
        "t2d": torch.zeros(shape.vocab, dtype=torch.bool).index_fill_(0, ids, value=True),
    }
    if skilled:
        _give_skill(tensors, shape)
    return tensors


def _give_skill(tensors: dict[str, Tensor], shape: TinyShape) -> None:
    """Sharp self-attention whose output turns any state into the token's embedding."""
    h, dim = shape.hidden, shape.head_dim
    assert h == shape.kv_heads * dim, "the values must carry a whole state"
    for name in ("input_layernorm", "hidden_norm"):
        tensors[f"midlayer.{name}.weight"] = torch.ones(h)
    sharp = torch.zeros(shape.heads * dim, 2 * h)
    sharp[:, 0] = 12.0  # embedding dimension 0 is a constant: q and k do not depend on the token
    tensors["midlayer.self_attn.q_proj.weight"] = sharp
    tensors["midlayer.self_attn.k_proj.weight"] = sharp[: shape.kv_heads * dim].clone()
    gain = 8.0
    eye = torch.eye(h)
    tensors["midlayer.self_attn.v_proj.weight"] = torch.cat([gain * eye, -gain * eye], 1)
    out = torch.zeros(h, shape.heads * dim)
    group = shape.heads // shape.kv_heads
    for head in range(shape.kv_heads):
        rows = slice(head * dim, (head + 1) * dim)
        first = head * group * dim
        out[rows, first : first + dim] = torch.eye(dim)
    tensors["midlayer.self_attn.o_proj.weight"] = out
    tensors["midlayer.mlp.down_proj.weight"] *= 0.02
    # a state of rms ``gain`` is cancelled exactly by the hidden half of the values
    tensors["fc.weight"] *= gain


def _layer(at: str, shape: TinyShape, new: Any, attention_in: int) -> dict[str, Tensor]:
    h, dim = shape.hidden, shape.head_dim
    std = attention_in**-0.5
    return {
        f"{at}.self_attn.q_proj.weight": new(shape.heads * dim, attention_in, std=2 * std),
        f"{at}.self_attn.k_proj.weight": new(shape.kv_heads * dim, attention_in, std=2 * std),
        f"{at}.self_attn.v_proj.weight": new(shape.kv_heads * dim, attention_in, std=std),
        f"{at}.self_attn.o_proj.weight": new(h, shape.heads * dim, std=(shape.heads * dim) ** -0.5),
        f"{at}.input_layernorm.weight": 1 + new(h, std=0.1),
        f"{at}.post_attention_layernorm.weight": 1 + new(h, std=0.1),
        f"{at}.mlp.gate_proj.weight": new(shape.inner, h, std=h**-0.5),
        f"{at}.mlp.up_proj.weight": new(shape.inner, h, std=h**-0.5),
        f"{at}.mlp.down_proj.weight": new(h, shape.inner, std=shape.inner**-0.5),
    }


def write_folder(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """config.json and model.safetensors."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(
        {name: value.contiguous() for name, value in tensors.items()}, path / "model.safetensors"
    )


def write_tokenizer(path: Path) -> None:
    """A byte-level tokenizer: one id per byte and the special tokens, with a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": SPECIALS[0]}))
    (path / "chat_template.jinja").write_text(TEMPLATE)

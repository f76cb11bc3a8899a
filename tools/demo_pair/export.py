"""Stage export: the two folders in the layouts that loaders read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tools.demo_pair import checkpoint, text
from tools.demo_pair.example import BOS, END, SPECIALS
from tools.demo_pair.model import Draft, Shape, Target
from tools.demo_pair.plan import Plan

TARGET_FILES = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
DRAFT_FILES = ("model.safetensors", "config.json")


def _write(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _common(shape: Shape) -> dict[str, object]:
    return {
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "rope_scaling": None,
        "max_position_embeddings": shape.max_positions,
        "attention_bias": False,
        "mlp_bias": False,
        "vocab_size": shape.vocab,
        "torch_dtype": "float16",
        "initializer_range": 0.02,
    }


def target_config(shape: Shape, bos: int, ends: list[int]) -> dict[str, object]:
    """config.json of the target."""
    return {
        "architectures": ["LlamaForCausalLM"],
        **_common(shape),
        "num_hidden_layers": shape.layers,
        "tie_word_embeddings": True,
        "bos_token_id": bos,
        "eos_token_id": ends,
        "pad_token_id": bos,
        "use_cache": True,
    }


def draft_config(shape: Shape, bos: int | None, ends: list[int]) -> dict[str, object]:
    """config.json of the draft; the ids name layers whose output is captured (k - 1)."""
    ids = [k - 1 for k in shape.capture]
    stops: dict[str, object] = {} if bos is None else {"bos_token_id": bos}
    if ends:
        stops["eos_token_id"] = ends
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **_common(shape),
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
        "draft_vocab_size": shape.draft_vocab,
        "target_hidden_size": shape.hidden,
        **stops,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True},
    }


def _tokenizer_files(plan: Plan, folder: Path) -> tuple[int, list[int]]:
    shutil.copyfile(plan.path("tokenizer.json"), folder / "tokenizer.json")
    tokenizer = text.load_tokenizer(folder / "tokenizer.json")
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": END,
            "pad_token": BOS,
            "add_bos_token": False,
            "additional_special_tokens": [s for s in SPECIALS if s not in (BOS, END)],
            "clean_up_tokenization_spaces": False,
            "model_max_length": plan.shape.max_positions,
            "chat_template": text.CHAT_TEMPLATE,
        },
    )
    bos = text.token_id(tokenizer, BOS)
    ends = [text.token_id(tokenizer, END), bos]
    _write(
        folder / "generation_config.json",
        {"bos_token_id": bos, "eos_token_id": ends, "pad_token_id": bos, "do_sample": False},
    )
    return bos, ends


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    half = {k: v.to(torch.float16) if v.is_floating_point() else v for k, v in tensors.items()}
    save_file({k: v.contiguous() for k, v in half.items()}, str(path), metadata={"format": "pt"})


def export_target(plan: Plan, folder: Path) -> tuple[int, list[int]]:
    """Llama folder: fp16 weights, configuration, tokenizer with chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    state = checkpoint.load(plan.path("target.safetensors"))
    _save(folder / "model.safetensors", {f"model.{name}": value for name, value in state.items()})
    bos, ends = _tokenizer_files(plan, folder)
    _write(folder / "config.json", target_config(plan.shape, bos, ends))
    return bos, ends


def export_draft(plan: Plan, folder: Path, bos: int, ends: list[int]) -> None:
    """The draft of the last round."""
    saved = checkpoint.load(plan.path("draft-again.safetensors"))
    tokens = saved.pop("tokens")
    write_specforge(folder, plan.shape, saved, tokens, bos, ends)


def write_specforge(
    folder: Path,
    shape: Shape,
    state: dict[str, Tensor],
    tokens: Tensor,
    bos: int | None,
    ends: list[int],
) -> None:
    """SpecForge layout: ``midlayer.*``, d2t offsets, t2d mask, no embedding; floats in fp16."""
    folder.mkdir(parents=True, exist_ok=True)
    mask = torch.zeros(shape.vocab, dtype=torch.bool)
    mask[tokens] = True
    offsets = tokens - torch.arange(len(tokens))
    _save(folder / "model.safetensors", {**state, "d2t": offsets.long(), "t2d": mask})
    _write(folder / "config.json", draft_config(shape, bos, ends))


def stage_export(plan: Plan) -> None:
    """Write both folders."""
    bos, ends = export_target(plan, plan.out / "target")
    export_draft(plan, plan.out / "draft", bos, ends)
    size = sum(
        (plan.out / part / "model.safetensors").stat().st_size for part in ("target", "draft")
    )
    plan.log("export", f"{size / 1e6:.2f} MB of safetensors in {plan.out}")


def load_pair(folder: Path) -> tuple[Target, Draft, Tensor]:
    """Exported files as training models in fp32, and the draft's target ids."""
    config = json.loads((folder / "target" / "config.json").read_text())
    draft_cfg = json.loads((folder / "draft" / "config.json").read_text())
    ids = draft_cfg["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    shape = Shape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        inner=config["intermediate_size"],
        theta=config["rope_theta"],
        eps=config["rms_norm_eps"],
        capture=tuple(x + 1 for x in ids),
        draft_vocab=draft_cfg["draft_vocab_size"],
    )
    target, draft = Target(shape), Draft(shape)
    weights = load_file(str(folder / "target" / "model.safetensors"))
    target.load_state_dict({k.removeprefix("model."): v.float() for k, v in weights.items()})
    tensors = load_file(str(folder / "draft" / "model.safetensors"))
    offsets = tensors.pop("d2t")
    tensors.pop("t2d")
    draft.load_state_dict({k: v.float() for k, v in tensors.items()})
    return target, draft, torch.arange(len(offsets)) + offsets

"""Stages draft and export: train on the captured features, and write the folder that is served."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from specbench.checkpoint import Folder, read_draft, read_header, read_target
from specbench.checkpoint.writers import write_draft
from specbench.engine.models.weights import load_tensors
from specbench.errors import CheckpointError, ConfigError, OutputError
from specbench.modelspec import TargetSpec
from tools.demo_pair import checkpoint
from tools.demo_pair.draft_loop import Course, begin_as_head, draft_tokens, train
from tools.demo_pair.export import write_specforge
from tools.demo_pair.model import Draft, Shape
from tools.draft_training.features import captured_layers, on_disk, shard_files
from tools.draft_training.plan import Plan
from tools.draft_training.texts import needed_texts

WRITTEN = ("README.md", "config.json", "model.safetensors", "probe.json")
DRAFT = "draft.safetensors"
EMBEDDING, NORM = "model.embed_tokens.weight", "model.norm.weight"


def draft_shape(plan: Plan, target: TargetSpec) -> Shape:
    """A draft as wide as its target, with one layer like the target's.

    Raises:
        CheckpointError: the target's layers are not Llama's.
        ConfigError: layers or a vocabulary that the target does not have.
    """
    if not target.plain:
        raise CheckpointError(
            f"{plan.target} has layers beyond Llama's.", expected="A target of the Llama family."
        )
    capture, most = captured_layers(plan, target.n_layers), target.n_layers
    if not capture or any(a >= b for a, b in pairwise(capture)):
        raise ConfigError(f"capture {list(capture)}.", expected="Ascending physical indices.")
    if not 0 < capture[0] <= capture[-1] <= most:
        raise ConfigError(f"capture {list(capture)}.", expected=f"Physical indices in 1..{most}.")
    if not 1 <= plan.draft_vocab <= target.vocab:
        raise ConfigError(f"draft vocabulary {plan.draft_vocab} of {target.vocab}.")
    if plan.from_layer >= most:
        raise ConfigError(f"--from-layer {plan.from_layer}.", expected=f"-1..{most - 1}.")
    layer = target.shape
    return Shape(
        vocab=target.vocab,
        hidden=layer.hidden,
        layers=target.n_layers,
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        head_dim=layer.head_dim,
        inner=layer.inner,
        theta=target.rope.theta,
        eps=layer.eps,
        capture=capture,
        draft_vocab=plan.draft_vocab,
        max_positions=target.rope.max_position,
    )


def target_weights(folder: Folder, target: TargetSpec, layer: int) -> dict[str, Tensor]:
    """Embedding, head, final norm, and one layer under ``layer.``, in float32."""
    at = f"model.layers.{layer % target.n_layers}."
    head = EMBEDDING if target.tied else "lm_head.weight"
    names = {EMBEDDING, NORM, head, *(n for n in folder.tensors if n.startswith(at))}
    part = {name: folder.tensors[name] for name in names}
    few = Folder(path=folder.path, config=folder.config, tensors=part, files=folder.files)
    found = load_tensors(few, torch.float32, torch.device("cpu"))
    kept = {n.replace(at, "layer."): v for n, v in found.items() if n.startswith(at)}
    return {**kept, "embedding": found[EMBEDDING], "norm": found[NORM], "head": found[head]}


def begin_as_layer(draft: Draft, weights: Mapping[str, Tensor]) -> None:
    """Let the draft's layer begin as one of the target's that does not look at the embedding yet.

    Its attention reads [embedding ; hidden]: the target's matrices go to the hidden half, and the
    embedding half keeps a tenth of its random values.
    """
    layer, width = draft.midlayer, draft.shape.hidden
    with torch.no_grad():
        for name in ("q_proj", "k_proj", "v_proj"):
            matrix = getattr(layer.self_attn, name).weight
            matrix[:, :width].mul_(0.1)
            matrix[:, width:].copy_(weights[f"layer.self_attn.{name}.weight"])
        layer.self_attn.o_proj.weight.copy_(weights["layer.self_attn.o_proj.weight"])
        layer.hidden_norm.weight.copy_(weights["layer.input_layernorm.weight"])
        after = weights["layer.post_attention_layernorm.weight"]
        layer.post_attention_layernorm.weight.copy_(after)
        for name in ("gate_proj", "up_proj", "down_proj"):
            getattr(layer.mlp, name).weight.copy_(weights[f"layer.mlp.{name}.weight"])


def stage_draft(plan: Plan) -> None:
    """Train, from the last checkpoint if there is one."""
    target, folder = read_target(plan.target)
    shape = draft_shape(plan, target)
    torch.manual_seed(plan.seed)
    weights, draft = target_weights(folder, target, plan.from_layer), Draft(shape)
    texts = needed_texts(plan)
    for path in shard_files(plan, len(texts), shape.capture):
        plan.need(path, "features")
    said = torch.tensor([t for text in texts for t in text.tokens[text.prompt_len :]])
    counts = torch.bincount(said, minlength=target.vocab)
    tokens = draft_tokens(counts, plan.draft_vocab)
    begin_as_head(draft, weights["head"], weights["norm"], tokens)
    begin_as_layer(draft, weights)
    course = Course(
        steps=plan.steps,
        rows=plan.rows,
        unroll=plan.ttt_steps,
        seed=plan.seed,
        saved=plan.path("draft-part.safetensors"),
        log=lambda line: plan.log("draft", line),
        muon_rate=plan.muon_rate,
        adam_rate=plan.adam_rate,
    )
    fetch = on_disk(plan, shape.capture, weights["head"], tokens)
    lengths = [len(text.tokens) for text in texts]
    _check_checkpoint(course.saved, draft)
    done = train(course, draft, weights["embedding"], tokens, fetch, lengths)
    checkpoint.save(plan.path(DRAFT), {**draft.state_dict(), "tokens": tokens})
    plan.record(
        "draft",
        {
            "minutes": done.minutes,
            "steps": plan.steps,
            "rows": plan.rows,
            "unroll": plan.ttt_steps,
            "coverage": float(counts[tokens].sum() / counts.sum()),
            "losses": list(done.losses),
            "accuracy": list(done.accuracy),
        },
    )


def _check_checkpoint(path: Path, draft: Draft) -> None:
    """See that a training that goes on is of the same draft.

    Raises:
        OutputError: it is another's.
    """
    if not path.exists():
        return
    kept = {n: e.shape for n, e in read_header(path).items() if n.startswith("model/")}
    made = {f"model/{name}": tuple(value.shape) for name, value in draft.state_dict().items()}
    if {name: tuple(shape) for name, shape in kept.items()} != made:
        raise OutputError(
            f"{path} is the checkpoint of a draft of other sizes.",
            todo="Remove it to begin anew, or take a new --work.",
        )


def stage_export(plan: Plan) -> None:
    """Write the folder through the writer of ``specbench convert``, for the named engine.

    Raises:
        ConfigError: the output folder holds files that are not a draft's.
        OutputError: no draft was trained.
    """
    target, folder = read_target(plan.target)
    shape, state = draft_shape(plan, target), checkpoint.load(plan.need(plan.path(DRAFT), "draft"))
    tokens, raw = state.pop("tokens"), plan.path("specforge")
    write_specforge(raw, shape, state, tokens, target.bos_id, list(target.eos_ids))
    spec, read = read_draft(raw, target)
    _clear(plan)
    written = write_draft(
        spec,
        read,
        plan.out,
        layout=plan.layout,
        engine=plan.engine,
        arch=str((folder.config.get("architectures") or [""])[0]),
        layers=target.n_layers,
    )
    size = (plan.out / "model.safetensors").stat().st_size / 1e6
    plan.log("export", f"{size:.1f} MB in {plan.out}, {written.key or 'no'} ids {written.ids}")
    plan.record("export", {"key": written.key, "ids": list(written.ids), "notes": written.notes})


def check_out(plan: Plan) -> None:
    """See that the output folder is new, or an earlier export's.

    Raises:
        ConfigError: it holds something else, or is none.
    """
    if not plan.out.exists():
        return
    if not plan.out.is_dir():
        raise ConfigError(f"{plan.out} is no folder.", todo="Name a new folder.")
    others = sorted(p.name for p in plan.out.iterdir() if p.name not in WRITTEN)
    if others:
        raise ConfigError(f"{plan.out} holds {', '.join(others[:4])}.", todo="Name a new folder.")


def _clear(plan: Plan) -> None:
    """Remove what an earlier export wrote, and nothing else."""
    check_out(plan)
    for name in WRITTEN:
        (plan.out / name).unlink(missing_ok=True)

"""Stages corpus, tokenizer and target: from text to a trained target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter as clock

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from tools.demo_pair import checkpoint, corpus, text
from tools.demo_pair.model import Target
from tools.demo_pair.optim import Optimiser
from tools.demo_pair.plan import Plan


def stage_corpus(plan: Plan) -> None:
    """Write train.jsonl and one validation file a kind."""
    plan.keep_made_from(plan.made_from())
    examples = corpus.training_examples(plan.characters, plan.seed, plan.documents)
    corpus.save(plan.path("train.jsonl"), examples)
    for kind, held in corpus.validation_examples(
        plan.validation, plan.seed, plan.documents
    ).items():
        corpus.save(plan.path(f"valid-{kind}.jsonl"), held)
    sizes = Counter[str]()
    for ex in examples:
        kind = ex.template.split(":")[0] if ":" in ex.template else ex.category
        sizes[kind] += len(ex.render())
    plan.record("corpus", {"examples": len(examples), "characters": dict(sizes)})
    plan.log("corpus", f"{len(examples)} conversations, {sum(sizes.values())} characters")


def stage_tokenizer(plan: Plan) -> None:
    """Train the tokenizer, or take that of the pair that grows; pack the text into rows."""
    examples = corpus.load(plan.path("train.jsonl"))
    if plan.grow is None:
        tokenizer = text.train_tokenizer((ex.render() for ex in examples), plan.shape.vocab)
    else:
        tokenizer = text.load_tokenizer(plan.grow / "target" / "tokenizer.json")
    tokenizer.save(str(plan.path("tokenizer.json")))
    ids, used = text.pack(text.encode(tokenizer, examples), plan.length)
    inside = text.masks(tokenizer, ids, used)
    checkpoint.save(plan.path("train.safetensors"), {"ids": ids, "used": used, "inside": inside})
    tokens = int(used.sum())
    characters = sum(len(ex.render()) for ex in examples)
    plan.record(
        "tokenizer",
        {
            "tokens": tokens,
            "characters_per_token": characters / tokens,
            "fill": tokens / ids.numel(),
        },
    )
    plan.log(
        "tokenizer",
        f"{tokens} tokens, {len(ids)} rows, {characters / tokens:.2f} characters a token",
    )


def token_loss(model: Callable[[Tensor], Tensor], ids: Tensor, used: Tensor) -> Tensor:
    """Mean next-token loss over the used part of packed rows."""
    logits = model(ids[:, :-1])
    labels = ids[:, 1:].masked_fill(torch.arange(1, ids.shape[1])[None] >= used[:, None], -100)
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100
    )


@torch.no_grad()
def answer_loss(model: Target, tokenizer: Tokenizer, plan: Plan, kind: str) -> float:
    """Mean loss over the answers' tokens of a validation file."""
    rows = text.encode(tokenizer, corpus.load(plan.path(f"valid-{kind}.jsonl")))
    ids, used = text.pack(rows, plan.length)
    inside = text.masks(tokenizer, ids, used)
    total = count = 0.0
    for at in range(0, len(ids), 8):
        loss = functional.cross_entropy(
            model(ids[at : at + 8, :-1]).transpose(1, 2), ids[at : at + 8, 1:], reduction="none"
        )
        part = inside[at : at + 8, 1:]
        total, count = total + float(loss[part].sum()), count + float(part.sum())
    return total / max(count, 1.0)


def validation(model: Target, tokenizer: Tokenizer, plan: Plan) -> dict[str, float]:
    """Answer loss by kind of held-out text."""
    kinds = sorted(p.stem.removeprefix("valid-") for p in plan.work.glob("valid-*.jsonl"))
    return {kind: round(answer_loss(model, tokenizer, plan, kind), 3) for kind in kinds}


def stage_target(plan: Plan) -> None:
    """Pre-train the target; saves every 40 steps and goes on from what was saved."""
    torch.manual_seed(plan.seed)
    data = checkpoint.load(plan.path("train.safetensors"))
    model = Target(plan.shape)
    optimiser = Optimiser(model, plan.target_steps, 0.02, 3e-3)
    saved = plan.path("target-part.safetensors")
    start, spent, _ = checkpoint.load_training(saved, model, optimiser)
    run: Callable[[Tensor], Tensor] = torch.compile(model) if plan.compile else model
    begin, recent = clock() - spent, 0.0
    for step in range(start, plan.target_steps):
        loss = token_loss(run, *_batch(data, step, plan))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(step)
        recent = loss.item() if step == start else 0.95 * recent + 0.05 * loss.item()
        if (step + 1) % 20 == 0:
            plan.log(
                "target",
                f"step {step + 1}/{plan.target_steps} loss {recent:.3f} {clock() - begin:.0f} s",
            )
        if (step + 1) % 40 == 0:
            checkpoint.save_training(saved, model, optimiser, step + 1, clock() - begin)
    checkpoint.save(plan.path("target-base.safetensors"), model.state_dict())
    losses = validation(model, text.load_tokenizer(plan.path("tokenizer.json")), plan)
    tokens = plan.target_steps * plan.rows * plan.length
    plan.record(
        "target",
        {
            "minutes": (clock() - begin) / 60,
            "steps": plan.target_steps,
            "tokens": tokens,
            "train_loss": recent,
            "validation": losses,
        },
    )
    plan.log("target", f"validation {losses}")


def _batch(data: dict[str, Tensor], step: int, plan: Plan) -> tuple[Tensor, Tensor]:
    """Rows of a step: epochs in a seeded order."""
    total = len(data["ids"])
    per_epoch = max(1, total // plan.rows)
    epoch, at = divmod(step, per_epoch)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(plan.seed + epoch))
    chosen = order[at * plan.rows : (at + 1) * plan.rows]
    return data["ids"][chosen], data["used"][chosen]

"""Stage tune: sequence-level unlikelihood against loops (Welleck et al. 2019, arXiv 1908.04319).

The target continues training prompts greedily; tokens that complete a
repeated 4-gram of its own text are made less likely, beside the ordinary
loss, which now counts answers only. Nothing is blocked at inference.
"""

from __future__ import annotations

import random
from time import perf_counter as clock

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from tools.demo_pair import checkpoint, corpus, text
from tools.demo_pair.example import END, Example
from tools.demo_pair.generate import generate, repeat_positions, repeated_ngrams
from tools.demo_pair.model import Target
from tools.demo_pair.optim import Optimiser
from tools.demo_pair.plan import Plan
from tools.demo_pair.pretrain import validation

ROUNDS = 3
Own = tuple[list[int], list[int]]


def load_target(plan: Plan, name: str) -> Target:
    """A saved target."""
    model = Target(plan.shape)
    model.load_state_dict(checkpoint.load(plan.path(name)))
    return model


def _prompts(plan: Plan, tokenizer: Tokenizer, round_number: int) -> list[list[int]]:
    """Training prompts of the kinds that may loop: half from documents, half from templates."""
    examples = [ex for ex in corpus.load(plan.path("train.jsonl")) if "+" not in ex.template]
    rng = random.Random(f"{plan.seed}-tune-{round_number}")
    open_text = [ex for ex in examples if ":" in ex.template]
    rest = [
        ex for ex in examples if ":" not in ex.template and ex.category in ("prose", "dialogue")
    ]
    half = plan.tune_prompts // 2
    chosen: list[Example] = rng.sample(open_text, min(half, len(open_text)))
    chosen += rng.sample(rest, min(plan.tune_prompts - len(chosen), len(rest)))
    return [text.prompt_ids(tokenizer, ex) for ex in chosen]


def unlikelihood(model: Target, batch: list[Own], n: int = 4) -> Tensor:
    """Mean of -log(1 - p) over the tokens that complete a repeated n-gram of own text."""
    width = max(len(p) + len(o) for p, o in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    bad = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, (prompt, own) in enumerate(batch):
        ids[row, : len(prompt) + len(own)] = torch.tensor(prompt + own)
        for index in repeat_positions(own, n):
            bad[row, len(prompt) + index] = True
    logp = functional.log_softmax(model(ids[:, :-1]), dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    penalty = -torch.log((1 - logp.exp()).clamp_min(1e-5))
    chosen = bad[:, 1:]
    return (penalty * chosen).sum() / chosen.sum().clamp_min(1)


def _answers_loss(model: Target, data: dict[str, Tensor], chosen: Tensor) -> Tensor:
    ids, inside = data["ids"][chosen], data["inside"][chosen]
    labels = ids[:, 1:].masked_fill(~inside[:, 1:], -100)
    return functional.cross_entropy(
        model(ids[:, :-1]).flatten(0, 1), labels.flatten(), ignore_index=-100
    )


def _round(
    model: Target, optimiser: Optimiser, owns: list[Own], plan: Plan, done: int
) -> tuple[float, float]:
    """Steps of one round; returns the last two losses."""
    data, rng = checkpoint.load(plan.path("train.safetensors")), random.Random(done)
    looping = [own for own in owns if repeated_ngrams(own[1]) > 0.1]
    last = (0.0, 0.0)
    for index in range(plan.tune_steps // ROUNDS):
        rows = torch.tensor([rng.randrange(len(data["ids"])) for _ in range(plan.rows)])
        loss = plain = _answers_loss(model, data, rows)
        if looping:
            batch = rng.sample(looping, min(8, len(looping)))
            penalty = unlikelihood(model, batch)
            loss, last = plain + penalty, (plain.item(), penalty.item())
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(done + index)
    return last


def stage_tune(plan: Plan) -> None:
    """Rounds of own continuations and unlikelihood steps."""
    begin = clock()
    tokenizer = text.load_tokenizer(plan.path("tokenizer.json"))
    model = load_target(plan, "target-base.safetensors")
    end = text.token_id(tokenizer, END)
    optimiser = Optimiser(model, plan.tune_steps, 0.004, 6e-4)
    shares = []
    for number in range(ROUNDS):
        prompts = _prompts(plan, tokenizer, number)
        made = generate(model, prompts, 96, end)
        share = sum(repeated_ngrams(out[:-1]) >= 0.2 for out in made) / len(made)
        shares.append(round(share, 3))
        owns = list(zip(prompts, made, strict=True))
        losses = _round(model, optimiser, owns, plan, number * (plan.tune_steps // ROUNDS))
        plan.log(
            "tune",
            f"round {number} looping {share:.3f} losses {losses[0]:.3f} {losses[1]:.3f} "
            f"{clock() - begin:.0f} s",
        )
    checkpoint.save(plan.path("target.safetensors"), model.state_dict())
    losses_by_kind = validation(model, tokenizer, plan)
    plan.record(
        "tune",
        {
            "minutes": (clock() - begin) / 60,
            "steps": plan.tune_steps,
            "looping_by_round": shares,
            "validation": losses_by_kind,
        },
    )
    plan.log("tune", f"validation {losses_by_kind}")

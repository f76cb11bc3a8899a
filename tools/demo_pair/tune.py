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

Own = tuple[list[int], list[int]]


ROUNDS = 3
CATEGORIES = ("prose", "dialogue")
MUON_RATE, ADAM_RATE = 4e-3, 6e-4


def load_target(plan: Plan, name: str) -> Target:
    """A saved target."""
    model = Target(plan.shape)
    model.load_state_dict(checkpoint.load(plan.path(name)))
    return model


def _prompts(plan: Plan, tokenizer: Tokenizer, number: int) -> list[list[int]]:
    """Training prompts of the kinds that may loop: half from documents, half from templates."""
    examples = [ex for ex in corpus.load(plan.path("train.jsonl")) if "+" not in ex.template]
    rng = random.Random(f"{plan.seed}-tune-{number}")
    open_text = [ex for ex in examples if ":" in ex.template]
    rest = [ex for ex in examples if ":" not in ex.template and ex.category in CATEGORIES]
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
    model: Target, optimiser: Optimiser, owns: list[Own], plan: Plan, steps: range
) -> tuple[float, float]:
    """Steps of one round; returns the last two losses."""
    data, rng = checkpoint.load(plan.path("train.safetensors")), random.Random(steps.start)
    looping = [own for own in owns if repeated_ngrams(own[1]) > 0.1]
    last = (0.0, 0.0)
    for step in steps:
        rows = torch.tensor([rng.randrange(len(data["ids"])) for _ in range(plan.rows)])
        loss = plain = _answers_loss(model, data, rows)
        if looping:
            batch = rng.sample(looping, min(8, len(looping)))
            penalty = unlikelihood(model, batch)
            loss, last = plain + penalty, (plain.item(), penalty.item())
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(step)
    return last


def stage_tune(plan: Plan) -> None:
    """Rounds of own continuations and unlikelihood steps."""
    begin = clock()
    tokenizer = text.load_tokenizer(plan.path("tokenizer.json"))
    model, end = load_target(plan, "target-base.safetensors"), text.token_id(tokenizer, END)
    steps = plan.round_steps * ROUNDS
    optimiser = Optimiser(model, steps, MUON_RATE * plan.tune_rate, ADAM_RATE * plan.tune_rate)
    shares = []
    for number in range(ROUNDS):
        prompts = _prompts(plan, tokenizer, number)
        made = generate(model, prompts, 96, end)
        shares.append(round(sum(repeated_ngrams(out[:-1]) >= 0.2 for out in made) / len(made), 3))
        span = range(number * plan.round_steps, (number + 1) * plan.round_steps)
        losses = _round(model, optimiser, list(zip(prompts, made, strict=True)), plan, span)
        plan.log(
            "tune",
            f"round {number} looping {shares[-1]:.3f} losses {losses[0]:.3f} {losses[1]:.3f} "
            f"{clock() - begin:.0f} s",
        )
    checkpoint.save(plan.path("target.safetensors"), model.state_dict())
    found = validation(model, tokenizer, plan)
    minutes = (clock() - begin) / 60
    plan.record(
        "tune",
        {"minutes": minutes, "steps": steps, "looping_by_round": shares, "validation": found},
    )
    plan.log("tune", f"validation {found}")

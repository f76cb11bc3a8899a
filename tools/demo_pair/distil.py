"""Stage draft: train the EAGLE-3 head on the target's own text with a training-time-test unroll."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import perf_counter as clock

import torch
from torch import Tensor
from torch.nn import functional

from tools.demo_pair import checkpoint
from tools.demo_pair.model import Draft, Target, rows_logits
from tools.demo_pair.optim import Optimiser
from tools.demo_pair.plan import Plan
from tools.demo_pair.tune import load_target

DECAY = 0.8


def draft_tokens(counts: Tensor, size: int) -> Tensor:
    """The most frequent target ids, ascending; ties go to the smaller id."""
    order = torch.argsort(counts, descending=True, stable=True)
    return order[:size].sort().values


def new_draft(plan: Plan, target: Target, tokens: Tensor) -> Draft:
    """A draft that begins as a copy of the target's head behind the deepest feature."""
    draft = Draft(plan.shape)
    width = plan.shape.hidden
    with torch.no_grad():
        draft.fc.weight.mul_(0.1)
        draft.fc.weight[:, -width:] += torch.eye(width)
        draft.lm_head.weight.copy_(target.embed_tokens.weight[tokens])
        draft.norm.weight.copy_(target.norm.weight)
    return draft


def step_losses(
    draft: Draft, target: Target, tokens: Tensor, ids: Tensor, inside: Tensor, steps: int
) -> tuple[list[Tensor], list[float]]:
    """Loss and top-1 accuracy of every step, over the rows whose predicted token is in an answer.

    Step s of row i predicts token i + 2 + s. The loss is the cross-entropy
    to the target's distribution over the draft vocabulary; rows where the
    target's first choice lies outside it are left out of the loss and count
    as wrong in the accuracy.
    """
    with torch.no_grad():
        hidden, features = target.hidden(ids)
        scores = target.logits(hidden)
    best = scores.argmax(-1)
    covered = torch.isin(best, tokens)
    outputs = rows_logits(draft, target.embed_tokens.weight, features, steps, ids)
    losses, accuracies = [], []
    rows = ids.shape[1] - 1
    for step, logits in enumerate(outputs):
        count = rows - 1 - step
        wanted = slice(1 + step, 1 + step + count)
        answer = inside[:, 2 + step : 2 + step + count]
        chosen = answer & covered[:, wanted]
        guess = logits[:, :count][chosen]
        goal = scores[:, wanted][chosen][:, tokens].softmax(-1)
        losses.append(functional.cross_entropy(guess, goal))
        right = float((tokens[guess.argmax(-1)] == best[:, wanted][chosen]).sum())
        accuracies.append(right / max(1.0, float(answer.sum())))
    return losses, accuracies


def stage_draft(plan: Plan) -> None:
    """The first round, from a copy of the target's head."""
    torch.manual_seed(plan.seed + 1)
    data, target = (
        checkpoint.load(plan.path("policy.safetensors")),
        load_target(plan, "target.safetensors"),
    )
    tokens = draft_tokens(data["counts"], plan.shape.draft_vocab)
    draft = new_draft(plan, target, tokens)
    train(plan, draft, target, tokens, data, plan.draft_steps, "draft")


def stage_draft_again(plan: Plan) -> None:
    """The second round, from the draft of the first one, with its vocabulary."""
    data, target = (
        checkpoint.load(plan.path("policy-again.safetensors")),
        load_target(plan, "target.safetensors"),
    )
    first = checkpoint.load(plan.path("draft.safetensors"))
    tokens = first.pop("tokens")
    draft = Draft(plan.shape)
    draft.load_state_dict(first)
    train(plan, draft, target, tokens, data, plan.again_steps, "draft-again")


def batches(plan: Plan, count: int, start: int, steps: int) -> Iterator[tuple[int, Tensor]]:
    """Step and rows from ``start`` on: every row once an epoch, in an order of its own."""
    rng = random.Random(plan.seed)
    orders = [rng.sample(range(count), count) for _ in range(400)]
    per_epoch = max(1, count // plan.draft_rows)
    for step in range(start, steps):
        epoch, at = divmod(step, per_epoch)
        first = at * plan.draft_rows
        yield step, torch.tensor(orders[epoch % 400][first : first + plan.draft_rows])


def train(
    plan: Plan,
    draft: Draft,
    target: Target,
    tokens: Tensor,
    data: dict[str, Tensor],
    steps: int,
    name: str,
) -> None:
    """Train ``steps`` steps; saves every 50 and goes on from what was saved."""
    coverage = float(data["counts"][tokens].sum() / data["counts"].sum())
    optimiser = Optimiser(draft, steps, 0.02, 2e-3)
    saved = plan.path(f"{name}-part.safetensors")
    start, spent = checkpoint.load_training(saved, draft, optimiser)
    begin, recent = clock() - spent, [0.0] * plan.ttt_steps
    for step, rows in batches(plan, len(data["ids"]), start, steps):
        losses, right = step_losses(
            draft, target, tokens, data["ids"][rows], data["inside"][rows], plan.ttt_steps
        )
        loss = sum((DECAY**index * value for index, value in enumerate(losses)), torch.zeros(()))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(step)
        recent = (
            right
            if step == start
            else [0.95 * old + 0.05 * new for old, new in zip(recent, right, strict=True)]
        )
        if (step + 1) % 25 == 0:
            plan.log(
                name,
                f"step {step + 1}/{steps} accuracy {[round(x, 3) for x in recent]} "
                f"{clock() - begin:.0f} s",
            )
        if (step + 1) % 50 == 0:
            checkpoint.save_training(saved, draft, optimiser, step + 1, clock() - begin)
    checkpoint.save(plan.path(f"{name}.safetensors"), {**draft.state_dict(), "tokens": tokens})
    plan.record(
        name,
        {
            "minutes": (clock() - begin) / 60,
            "steps": steps,
            "rows": plan.draft_rows,
            "coverage": round(coverage, 4),
            "train_accuracy": [round(x, 3) for x in recent],
        },
    )

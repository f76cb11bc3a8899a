"""Training of an EAGLE-3 draft by a training-time-test unroll, whatever the target is.

Where rows come from (a target run online, or features on disk) is the caller's: ``Fetch``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter as clock

import torch
from torch import Tensor
from torch.nn import functional

from tools.demo_pair import checkpoint
from tools.demo_pair.model import Draft, rows_logits
from tools.demo_pair.optim import Optimiser

DECAY = 0.8
POOL = 16  # batches whose rows are sorted by length together
LOGGED, SAVED = 25, 50


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A batch of texts [B, L]: ids, which tokens are in an answer, and what the target makes of it.

    ``features`` [B, L, A·H] are the captured streams; ``goals`` [B, L, Vd] the target's scores of
    the draft's vocabulary after each token, ``best`` [B, L] its first choice of all.
    """

    ids: Tensor
    inside: Tensor
    features: Tensor
    goals: Tensor
    best: Tensor


Fetch = Callable[[Tensor], Rows]


@dataclass(frozen=True, kw_only=True)
class Course:
    """How long and how fast to train; ``saved`` is the checkpoint that a stopped run goes on from.

    ``rows`` texts a step, ``steps`` steps in all, of ``unroll`` training-time-test steps each.
    """

    steps: int
    rows: int
    unroll: int
    seed: int
    saved: Path
    log: Callable[[str], None]
    muon_rate: float = 0.02
    adam_rate: float = 2e-3


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Minutes, smoothed accuracy of each unroll step, and the mean loss of every 25 steps."""

    minutes: float
    accuracy: tuple[float, ...]
    losses: tuple[float, ...]


def draft_tokens(counts: Tensor, size: int) -> Tensor:
    """The most frequent target ids, ascending; ties go to the smaller id."""
    order = torch.argsort(counts, descending=True, stable=True)
    return order[:size].sort().values


def begin_as_head(draft: Draft, head: Tensor, norm: Tensor, tokens: Tensor) -> None:
    """Let the draft begin as a copy of the target's head behind the deepest feature."""
    width = draft.shape.hidden
    with torch.no_grad():
        draft.fc.weight.mul_(0.1)
        draft.fc.weight[:, -width:] += torch.eye(width)
        draft.lm_head.weight.copy_(head[tokens])
        draft.norm.weight.copy_(norm)


def step_losses(
    draft: Draft, embedding: Tensor, tokens: Tensor, rows: Rows, steps: int
) -> tuple[list[Tensor], list[float]]:
    """Loss and top-1 accuracy of every step, over the rows whose predicted token is in an answer.

    Step s of row i predicts token i + 2 + s. The loss is the cross-entropy
    to the target's distribution over the draft vocabulary; rows where the
    target's first choice lies outside it are left out of the loss and count
    as wrong in the accuracy.
    """
    covered = torch.isin(rows.best, tokens)
    outputs = rows_logits(draft, embedding, rows.features, steps, rows.ids)
    losses, accuracies = [], []
    length = rows.ids.shape[1] - 1
    for step, logits in enumerate(outputs):
        count = length - 1 - step
        wanted = slice(1 + step, 1 + step + count)
        answer = rows.inside[:, 2 + step : 2 + step + count]
        chosen = answer & covered[:, wanted]
        guess = logits[:, :count][chosen]
        goal = rows.goals[:, wanted][chosen].softmax(-1)
        losses.append(functional.cross_entropy(guess, goal) if len(guess) else guess.sum())
        right = float((tokens[guess.argmax(-1)] == rows.best[:, wanted][chosen]).sum())
        accuracies.append(right / max(1.0, float(answer.sum())))
    return losses, accuracies


def batches(course: Course, lengths: Sequence[int], start: int) -> Iterator[tuple[int, Tensor]]:
    """Step and rows from ``start`` on: every row once an epoch, in an order of its own.

    Rows of like length come together, so that little of a batch is padding.
    """
    rng, count = random.Random(course.seed), len(lengths)
    orders = [rng.sample(range(count), count) for _ in range(400)]
    per_epoch, pool = max(1, count // course.rows), POOL * course.rows
    for step in range(start, course.steps):
        epoch, at = divmod(step, per_epoch)
        order = orders[epoch % 400][: per_epoch * course.rows]
        first = at * course.rows // pool * pool
        near = sorted(order[first : first + pool], key=lambda i: lengths[i])
        place = at * course.rows - first
        yield step, torch.tensor(near[place : place + course.rows])


def train(
    course: Course,
    draft: Draft,
    embedding: Tensor,
    tokens: Tensor,
    fetch: Fetch,
    lengths: Sequence[int],
) -> Trained:
    """Train; saves every 50 steps and goes on from what was saved.

    Args:
        course: how long, how fast, and where the checkpoint lies.
        draft: changed in place.
        embedding: the target's [V, H].
        tokens: target ids of the draft's vocabulary [Vd], ascending.
        fetch: the rows of a batch by their numbers.
        lengths: tokens of every text.
    """
    optimiser = Optimiser(draft, course.steps, course.muon_rate, course.adam_rate)
    start, spent, losses = checkpoint.load_training(course.saved, draft, optimiser)
    begin, recent, window = clock() - spent, [0.0] * course.unroll, []
    for step, numbers in batches(course, lengths, start):
        found, right = step_losses(draft, embedding, tokens, fetch(numbers), course.unroll)
        loss = sum((DECAY**index * value for index, value in enumerate(found)), torch.zeros(()))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step(step)
        window.append(float(loss.detach()))
        recent = (
            right
            if step == start
            else [0.95 * old + 0.05 * new for old, new in zip(recent, right, strict=True)]
        )
        if (step + 1) % LOGGED == 0 or step + 1 == course.steps:
            losses.append(sum(window) / len(window))
            window = []
            course.log(
                f"step {step + 1}/{course.steps} loss {losses[-1]:.3f} accuracy "
                f"{[round(x, 3) for x in recent]} {clock() - begin:.0f} s"
            )
        if (step + 1) % SAVED == 0:
            seconds = clock() - begin
            checkpoint.save_training(course.saved, draft, optimiser, step + 1, seconds, losses)
    return Trained(
        minutes=(clock() - begin) / 60,
        accuracy=tuple(round(x, 3) for x in recent),
        losses=tuple(round(x, 4) for x in losses),
    )

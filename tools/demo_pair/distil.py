"""Stages draft: train the EAGLE-3 head on the target's own text, in two rounds."""

from __future__ import annotations

import torch
from torch import Tensor

from tools.demo_pair import checkpoint
from tools.demo_pair.draft_loop import Course, Fetch, Rows, begin_as_head, draft_tokens
from tools.demo_pair.draft_loop import train as train_draft
from tools.demo_pair.model import Draft, Target
from tools.demo_pair.plan import Plan
from tools.demo_pair.tune import load_target


def online(target: Target, tokens: Tensor, data: dict[str, Tensor]) -> Fetch:
    """Rows whose features the target makes when they are asked for."""

    def fetch(numbers: Tensor) -> Rows:
        ids = data["ids"][numbers]
        with torch.no_grad():
            hidden, features = target.hidden(ids)
            scores = target.logits(hidden)
        return Rows(
            ids=ids,
            inside=data["inside"][numbers],
            features=features,
            goals=scores[..., tokens],
            best=scores.argmax(-1),
        )

    return fetch


def stage_draft(plan: Plan) -> None:
    """The first round, from a copy of the target's head."""
    torch.manual_seed(plan.seed + 1)
    data, target = (
        checkpoint.load(plan.path("policy.safetensors")),
        load_target(plan, "target.safetensors"),
    )
    tokens = draft_tokens(data["counts"], plan.shape.draft_vocab)
    draft = Draft(plan.shape)
    begin_as_head(draft, target.embed_tokens.weight, target.norm.weight, tokens)
    train(plan, draft, target, tokens, data, plan.draft_steps, "draft")


def stage_draft_again(plan: Plan) -> None:
    """The second round, from the draft of the first one.

    Its vocabulary stays, but for a target that grew: that says other words, so the draft gets
    those that it says now.
    """
    data, target = (
        checkpoint.load(plan.path("policy-again.safetensors")),
        load_target(plan, "target.safetensors"),
    )
    first = checkpoint.load(plan.path("draft.safetensors"))
    tokens = first.pop("tokens")
    draft = Draft(plan.shape)
    draft.load_state_dict(first)
    if plan.grow is not None:
        tokens = renew_vocabulary(draft, tokens, data["counts"], target.embed_tokens.weight)
    train(plan, draft, target, tokens, data, plan.again_steps, "draft-again")


@torch.no_grad()
def renew_vocabulary(draft: Draft, tokens: Tensor, counts: Tensor, head: Tensor) -> Tensor:
    """Give the draft the most frequent tokens of ``counts`` [V]; returns their ids [Vd], ascending.

    A token that it could say keeps its row of the head; a new one begins with the target's,
    ``head`` [V, H].
    """
    renewed = draft_tokens(counts, len(tokens))
    rows = head[renewed].clone()
    kept = torch.isin(renewed, tokens)
    rows[kept] = draft.lm_head.weight[torch.searchsorted(tokens, renewed[kept])]
    draft.lm_head.weight.copy_(rows)
    return renewed


def train(
    plan: Plan,
    draft: Draft,
    target: Target,
    tokens: Tensor,
    data: dict[str, Tensor],
    steps: int,
    name: str,
) -> None:
    """Train ``steps`` steps and keep the draft with its vocabulary."""
    course = Course(
        steps=steps,
        rows=plan.draft_rows,
        unroll=plan.ttt_steps,
        seed=plan.seed,
        saved=plan.path(f"{name}-part.safetensors"),
        log=lambda line: plan.log(name, line),
    )
    lengths = [data["ids"].shape[1]] * len(data["ids"])
    embedding = target.embed_tokens.weight
    done = train_draft(course, draft, embedding, tokens, online(target, tokens, data), lengths)
    coverage = float(data["counts"][tokens].sum() / data["counts"].sum())
    checkpoint.save(plan.path(f"{name}.safetensors"), {**draft.state_dict(), "tokens": tokens})
    plan.record(
        name,
        {
            "minutes": done.minutes,
            "steps": steps,
            "rows": plan.draft_rows,
            "coverage": round(coverage, 4),
            "train_accuracy": list(done.accuracy),
        },
    )

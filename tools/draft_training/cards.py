# ruff: noqa: E501
"""Stages probe and card: specbench's own probe on the exported pair, and README.md beside it."""

from __future__ import annotations

import json
from typing import Any

from specbench.cli import main as specbench
from specbench.errors import OutputError
from tools.demo_pair.cards import files_table, parameters
from tools.draft_training.plan import Plan
from tools.draft_training.prompts import evaluation_requests

CARD = """# EAGLE-3 draft for {name}

A one-layer EAGLE-3 draft of {params:.2f} M parameters, made by `tools/train_draft.py` for the target whose weights are

{target_files}

- Format: {layout}{engine}; layer ids `{ids}`{key}.
- Features: physical k = {capture} (the residual stream that enters these layers) of {layers} layers.
- Draft vocabulary: {draft_vocab} of {vocab} tokens (`d2t` offsets, `t2d` mask); it covers {coverage:.1%} of the training replies.
- Rotations are plain with the target's base; the embedding is the target's.

## Data
The target's own replies to {prompts} prompts ({sources}), {greedy:.0%} greedy, the rest at temperature {temperature}, up to
{max_tokens} tokens: {tokens} tokens, of them {reply_tokens} in replies. Left out: {left_out}. The licence of the text is that of the
target and of the prompts.

## Training
{steps} steps of {rows} texts ({epochs:.1f} epochs), {unroll} training-time-test steps weighted 0.8^j, soft cross-entropy to the target's
distribution over the draft vocabulary, on the features that the engine itself captured; {minutes:.0f} minutes on {threads} thread(s). The
draft began as a copy of the target's layer {from_layer} and head. Mean weighted loss, first 25 steps to last: {first_loss:.3f} to
{last_loss:.3f}. Top-1 accuracy on the training text at the end, by training-time-test step: {accuracy}.

## Accuracy by specbench's probe
`specbench probe --workload {workload} --requests {requests} --max-tokens {eval_tokens} --num-steps {eval_steps}`; the prompts were
not trained on. Percent of {positions} positions of the target's greedy replies, true tokens fed in; *known* is the best token among
the draft's vocabulary, *all* among the target's. *Survival*: steps 1..k of a chain fed its own tokens are all right.

| step | known | all | survival |
|---|---|---|---|
{by_step}

| category | requests | accept length K={eval_steps}, all positions | accept length of the verify steps |
|---|---|---|---|
{by_category}

## Files
{files}
"""


def stage_probe(plan: Plan) -> None:
    """``specbench probe`` on the exported draft; writes probe.json.

    Raises:
        SystemExit: the command failed; it has said why.
    """
    plan.need(plan.out / "config.json", "export")
    path = plan.out / "probe.json"
    said = {
        "target": plan.target,
        "draft": plan.out,
        "workload": plan.evaluate,
        "requests": len(evaluation_requests(plan)),
        "max-tokens": plan.evaluate_tokens,
        "num-steps": plan.evaluate_steps,
        "positions": plan.evaluate_requests * plan.evaluate_tokens,
        "json": path,
    }
    if code := specbench(["probe", *(f"--{name}={value}" for name, value in said.items())]):
        raise SystemExit(code)
    facts = json.loads(path.read_text(encoding="utf-8"))
    for place in ("target", "draft"):  # folders of this machine
        facts.pop(place, None)
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def stage_card(plan: Plan) -> None:
    """Write README.md from what was recorded and measured.

    Raises:
        OutputError: a stage before it was not run.
    """
    text = CARD.format(**_facts(plan))
    (plan.out / "README.md").write_text(text, encoding="utf-8")
    plan.log("card", "written")


def _measured(plan: Plan) -> dict[str, dict[str, object]]:
    """What every stage before the card has recorded."""
    plan.need(plan.path("measured.json"), "texts")
    made = plan.measured()
    for stage in ("texts", "features", "draft", "export"):
        if stage not in made:
            raise OutputError(
                f"{plan.path('measured.json')} says nothing of stage {stage}.",
                todo=f"Run --stage {stage} first.",
            )
    plan.need(plan.out / "probe.json", "probe")
    return made


def _facts(plan: Plan) -> dict[str, Any]:
    made = _measured(plan)
    texts, draft, export = made["texts"], made["draft"], made["export"]
    probe = json.loads((plan.out / "probe.json").read_text(encoding="utf-8"))
    target = json.loads((plan.target / "config.json").read_text(encoding="utf-8"))
    losses, left_out = draft["losses"], texts["left_out"]
    assert isinstance(losses, list)
    assert isinstance(left_out, dict)
    return {
        "name": plan.target.resolve().name,
        "params": parameters(plan.out),
        "target_files": files_table(plan.target, ("model.safetensors",)),
        "layout": plan.layout,
        "engine": f" for {plan.engine}" if plan.engine else "",
        "ids": export["ids"],
        "key": f" under `{export['key']}`" if export["key"] else "",
        "capture": ", ".join(map(str, made["features"]["capture"])),  # type: ignore[call-overload]
        "layers": target["num_hidden_layers"],
        "draft_vocab": plan.draft_vocab,
        "vocab": target["vocab_size"],
        "coverage": draft["coverage"],
        **{key: texts[key] for key in ("prompts", "tokens", "reply_tokens")},
        "sources": ", ".join(map(str, texts["sources"])),  # type: ignore[call-overload]
        "greedy": plan.greedy_share,
        "temperature": plan.temperature,
        "max_tokens": plan.max_tokens,
        "left_out": ", ".join(f"{n} {why}" for why, n in left_out.items()),
        **{key: draft[key] for key in ("steps", "rows", "unroll", "minutes")},
        "epochs": draft["steps"] * draft["rows"] / texts["prompts"],  # type: ignore[operator]
        "threads": plan.threads,
        "from_layer": plan.from_layer % target["num_hidden_layers"],
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "accuracy": " ".join(map(str, draft["accuracy"])),  # type: ignore[call-overload]
        "workload": plan.evaluate,
        "requests": probe["requests"],
        "eval_tokens": plan.evaluate_tokens,
        "eval_steps": plan.evaluate_steps,
        "positions": probe["positions"],
        "by_step": _by_step(probe["groups"]["all"]),
        "by_category": _by_category(probe["groups"]),
        "files": files_table(plan.out, ("model.safetensors", "config.json")),
    }


def _by_step(group: dict[str, Any]) -> str:
    columns = [group[name] for name in ("accuracy_known", "accuracy_all", "survival")]
    rows = [
        f"| {step} | " + " | ".join(_cell(cell, 100, 1) for cell in cells) + " |"
        for step, cells in enumerate(zip(*columns, strict=True), 1)
    ]
    return "\n".join(rows)


def _by_category(groups: dict[str, dict[str, Any]]) -> str:
    names = ("implied_accept_length", "walk_accept_length")
    return "\n".join(
        f"| {category} | {group['requests']} | "
        + " | ".join(_cell(group[name], 1, 2) for name in names)
        + " |"
        for category, group in groups.items()
    )


def _cell(found: dict[str, float | None], scale: float, digits: int) -> str:
    value, low, high = (found[name] for name in ("value", "low", "high"))
    shown = f"{scale * (value or 0.0):.{digits}f}"
    if low is None or high is None:
        return shown
    return f"{shown} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]"

# ruff: noqa: E501 (tables and requests stay on one line)
"""Stage cards: model cards in which every figure is one that a stage recorded."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tools.demo_pair.export import DRAFT_FILES, TARGET_FILES
from tools.demo_pair.plan import Plan

DATA = """| part | source | licence | characters |
|---|---|---|---|
| prose templates | stories, letters, diary entries and descriptions, written for this project | Apache-2.0 | {prose} |
| dialogue templates | advice, bookings, choices, support | Apache-2.0 | {dialogue} |
| arithmetic templates | word problems with worked steps | Apache-2.0 | {arithmetic} |
| extraction templates | short texts and their facts as JSON | Apache-2.0 | {extraction} |
| code templates | short Python functions | Apache-2.0 | {code} |
| novels | Jane Austen, five novels (Debian `r-cran-janeaustenr`); *Persuasion* is held out | public domain | {novel} |
| manuals | SQLite (`sqlite3-doc`) and Python 3.11 (`python3.11-doc`); one page in twelve is held out | public domain; PSF-2.0 | {manual} |
| library code | functions of the Python 3.11 standard library; one module in twelve is held out | PSF-2.0 | {module} |
"""

TARGET_CARD = """# Demo target

A {params:.2f} M parameter Llama, trained by `tools/train_demo_pair.py` in {minutes:.0f} minutes on two CPU cores, so that
specbench has a real model to speculate for. It is a toy: it writes short, plausible text in the styles it was
trained on and knows nothing.

- Shape: {layers} layers, hidden {hidden}, {heads} query and {kv} key-value heads of {head_dim}, SwiGLU {inner}, tied embeddings, theta 10000, fp16.
- Tokenizer: byte-level BPE of {vocab}, digits one by one, {cpt:.2f} characters a token.
- Format: `<|endoftext|><|user|>...<|assistant|>...<|end|>`; an optional `<|system|>...<|end|>` comes first (chat template included).
- Features for the draft: physical indices k = {capture} (the residual stream that enters these layers).

## Data
{data}
Characters are those of the training text, chat marks included.

## Training
Pre-training: {steps} steps, {tokens:.2f} M tokens (rows of {length}), Muon and AdamW, {target_minutes:.1f} minutes. Then {tune_steps} steps of
sequence-level unlikelihood on repeated 4-grams of its own greedy text (Welleck et al. 2019, arXiv 1908.04319) mixed with
the ordinary loss on answers, {tune_minutes:.1f} minutes; share of looping greedy continuations of training prompts (half of
them document passages), at the start of each round: {tune_rounds}.

Loss a token on answers, on templates and documents that training did not see:

| kind | after pre-training | shipped |
|---|---|---|
{losses}

## Loops
Greedy, 96 tokens, `workloads/default`. An output loops if at least a quarter of its 4-grams (before the end mark)
occurred in it before; the written answers of held-out text stay below that (up to 0.24, in manuals and code). Outputs
with a fifth are counted as well: most of them are short, wrong sums that repeat a figure and then end.

| category | looping | at least a fifth repeated | mean share of repeated 4-grams | ended within 96 |
|---|---|---|---|---|
{loops}

## Limits
The share of looping outputs is not independent of the workload: the tuned weights were chosen among five checkpoints, document
prompts were cut from 9 to 5 of 100, and the held-out arithmetic prompts were reworded, all after looking at outputs on
`workloads/default`. Copied names are often wrong, and so are most sums in wordings that training did not see.

English templates and a few documents only; facts, sums and code may be wrong. Contexts longer than {length} tokens were
not trained. Not for any use but measuring.

## Files
{files}
"""

DRAFT_CARD = """# Demo EAGLE-3 draft

A one-layer EAGLE-3 draft of {params:.2f} M parameters for the demo target, in SpecForge layout (`midlayer.*`, no embedding: it
uses the target's). Made by `tools/train_demo_pair.py`.

- Features: physical k = {capture}; the configuration says `{ids}`, meaning the output of these layers.
- Row i reads (token i + 1, feature i) at rotary position i and predicts token i + 2. The recurrence carries the state before the final norm; the residual starts from the un-normed `fc` output.
- Draft vocabulary: {draft_vocab} of {vocab} tokens (`d2t` offsets, `t2d` mask); it covers {coverage:.1%} of the target's own text.

## Training
Two rounds on the target's own answers, five categories in equal parts; steps of {rows} rows of {length}, {ttt} training-time-test
steps weighted 0.8^j, soft cross-entropy to the target's distribution over the draft vocabulary.

| round | prompts | tokens | text made in | steps | trained in | top-1 accuracy at its end, on its own text, by step |
|---|---|---|---|---|---|---|
| 1: training prompts, half greedy, half T = 0.7 | {prompts} | {policy_tokens} | {policy_minutes:.1f} min | {steps} | {minutes:.1f} min | {accuracy} |
| 2: half of the prompts spliced from two others, two thirds greedy | {again_prompts} | {again_tokens} | {again_text_minutes:.1f} min | {again_steps} | {again_minutes:.1f} min | {again_accuracy} |

Held-out prompts leave the target less sure of itself than those it was trained on; the spliced prompts of round 2 stand for them.

## Accept length
Greedy, 96 tokens, `workloads/default` (templates and documents that training did not see), batch 1, fp32, chains of K;
the bonus token is counted, tokens are pooled over passes, nothing is clipped at the end.

| category | K=1 | 2 | 3 | 4 | 5 | 6 | 7 |
|---|---|---|---|---|---|---|---|
{lengths}

Teacher-forced top-1 by step on the same outputs (a token outside the draft vocabulary counts as wrong):

| category | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
|---|---|---|---|---|---|---|---|
{steps_table}

Step 7 was not trained ({ttt} were).

## Data and licence
The text is the target's own; the prompts come from the data in the target's card, under the licences named there.

## Files
{files}
"""


def digest(path: Path) -> str:
    """sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_table(folder: Path, names: tuple[str, ...]) -> str:
    """Size and hash of some files of a folder, as a table."""
    rows = [f"| `{n}` | {(folder / n).stat().st_size} | `{digest(folder / n)}` |" for n in names]
    return "\n".join(["| file | bytes | sha256 |", "|---|---|---|", *rows])


def _numbers(rows: list[dict[str, Any]], key: str) -> str:
    lines = []
    for row in rows:
        values = row[key].values() if isinstance(row[key], dict) else row[key]
        form = "{:.2f}" if key == "accept_length" else "{:.3f}"
        lines.append(f"| {row['category']} | " + " | ".join(form.format(v) for v in values) + " |")
    return "\n".join(lines)


def parameters(folder: Path) -> float:
    """Millions of parameters in a folder's weights; maps are not counted."""
    from safetensors.torch import load_file

    return (
        sum(
            t.numel()
            for t in load_file(str(folder / "model.safetensors")).values()
            if t.is_floating_point()
        )
        / 1e6
    )


def target_card(plan: Plan, m: dict[str, Any]) -> str:
    """Text of the target's card."""
    shape, rows = plan.shape, m["evaluate"]["rows"]
    loops = "\n".join(
        f"| {r['category']} | {r['looping']} of {r['prompts']} | {r['a_fifth_repeated']} | {r['repeated_4grams']:.3f} | {r['ended']} |"
        for r in rows
    )
    base, final = m["target"]["validation"], m["tune"]["validation"]
    losses = "\n".join(f"| {kind} | {base[kind]:.2f} | {final[kind]:.2f} |" for kind in final)
    sizes = {
        k: m["corpus"]["characters"].get(k, 0)
        for k in (
            "prose",
            "dialogue",
            "arithmetic",
            "extraction",
            "code",
            "novel",
            "manual",
            "module",
        )
    }
    return TARGET_CARD.format(
        params=parameters(plan.out / "target"),
        minutes=m["target"]["minutes"] + m["tune"]["minutes"],
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv=shape.kv_heads,
        head_dim=shape.head_dim,
        inner=shape.inner,
        vocab=shape.vocab,
        cpt=m["tokenizer"]["characters_per_token"],
        capture=", ".join(map(str, shape.capture)),
        data=DATA.format(**sizes),
        steps=m["target"]["steps"],
        tokens=m["target"]["tokens"] / 1e6,
        length=plan.length,
        target_minutes=m["target"]["minutes"],
        tune_steps=m["tune"]["steps"],
        tune_minutes=m["tune"]["minutes"],
        tune_rounds=", ".join(f"{x:.1%}" for x in m["tune"]["looping_by_round"]),
        losses=losses,
        loops=loops,
        files=files_table(plan.out / "target", TARGET_FILES),
    )


def draft_card(plan: Plan, m: dict[str, Any]) -> str:
    """Text of the draft's card."""
    shape, rows = plan.shape, m["evaluate"]["rows"]
    return DRAFT_CARD.format(
        params=parameters(plan.out / "draft"),
        capture=", ".join(map(str, shape.capture)),
        ids=[k - 1 for k in shape.capture],
        draft_vocab=shape.draft_vocab,
        vocab=shape.vocab,
        coverage=m["draft"]["coverage"],
        prompts=m["policy"]["prompts"],
        policy_tokens=m["policy"]["tokens"],
        policy_minutes=m["policy"]["minutes"],
        steps=m["draft"]["steps"],
        rows=m["draft"]["rows"],
        length=plan.length,
        ttt=plan.ttt_steps,
        minutes=m["draft"]["minutes"],
        accuracy=" ".join(map(str, m["draft"]["train_accuracy"])),
        again_prompts=m["policy-again"]["prompts"],
        again_tokens=m["policy-again"]["tokens"],
        again_text_minutes=m["policy-again"]["minutes"],
        again_steps=m["draft-again"]["steps"],
        again_minutes=m["draft-again"]["minutes"],
        again_accuracy=" ".join(map(str, m["draft-again"]["train_accuracy"])),
        lengths=_numbers(rows, "accept_length"),
        steps_table=_numbers(rows, "step_accuracy"),
        files=files_table(plan.out / "draft", DRAFT_FILES),
    )


def stage_cards(plan: Plan) -> None:
    """Write README.md and evaluation.json beside the weights."""
    measured = plan.measured()
    (plan.out / "target" / "README.md").write_text(target_card(plan, measured), encoding="utf-8")
    (plan.out / "draft" / "README.md").write_text(draft_card(plan, measured), encoding="utf-8")
    (plan.out / "draft" / "evaluation.json").write_text(
        plan.path("evaluation.json").read_text(), encoding="utf-8"
    )
    plan.log("cards", "written")

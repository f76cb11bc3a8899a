"""Stage evaluate: accept lengths, per-step accuracy and loops on the default workload.

A greedy chain is scored on the target's own greedy text. Row i of the draft
starts a chain after token i + 1; it fits the walk of a real engine exactly,
because committed rows see true features and drafted rows only their own
chain, and every step that counts had only right tokens before it. The text
runs DEPTH + 1 tokens past its end, since a chain is not clipped there.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from time import perf_counter as clock

import torch
from tokenizers import Tokenizer

from tools.demo_pair import text
from tools.demo_pair.example import CATEGORIES, END, Example
from tools.demo_pair.export import load_pair
from tools.demo_pair.generate import generate, repeated_ngrams
from tools.demo_pair.model import Draft, Target, rows_logits
from tools.demo_pair.plan import Plan

DEPTH = 7
NEW = 96
# Written answers of held-out documents and templates reach 0.24 (names of functions repeat).
LOOP_THRESHOLD = 0.25
Hits = list[list[bool]]


def workload(folder: Path) -> list[Example]:
    """Prompts of a workload as single-answer examples (first turn)."""
    found = []
    for line in (folder / "prompts.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.append(
            Example(
                row["category"],
                row["id"],
                tuple((t, "") for t in row["turns"]),
                row.get("system", ""),
            )
        )
    return found


@torch.no_grad()
def chain_hits(
    target: Target, draft: Draft, tokens: torch.Tensor, prompt: list[int], own: list[int]
) -> Hits:
    """hits[p][s]: is step s right for a chain that begins after own token p (teacher-forced)."""
    full = prompt + own
    ids = torch.tensor([full])
    _, features = target.hidden(ids)
    outputs = rows_logits(draft, target.embed_tokens.weight, features, DEPTH, ids)
    guesses = torch.stack([tokens[logits[0].argmax(-1)] for logits in outputs], dim=-1).tolist()
    hits = []
    for place in range(len(own)):
        row = len(prompt) + place - 1
        if row >= len(guesses):
            break
        last = len(full) - 1
        hits.append(
            [row + 2 + s <= last and guesses[row][s] == full[row + 2 + s] for s in range(DEPTH)]
        )
    return hits


def walk(hits: Hits, length: int, depth: int) -> tuple[int, int]:
    """Committed tokens (before trimming) and verify passes of a chain over ``length`` tokens."""
    place, passes, committed = 0, 0, 0
    while place < length - 1:
        run = 0
        while run < depth and hits[place][run]:
            run += 1
        passes, committed, place = passes + 1, committed + run + 1, place + run + 1
    return committed, passes


def _lengths(texts: list[Hits], cuts: list[int]) -> dict[str, float]:
    table = {}
    for depth in range(1, DEPTH + 1):
        pairs = [walk(hits, cut, depth) for hits, cut in zip(texts, cuts, strict=True)]
        table[str(depth)] = round(sum(c for c, _ in pairs) / max(1, sum(p for _, p in pairs)), 3)
    return table


def _accuracy(texts: list[Hits], cuts: list[int]) -> list[float]:
    """Teacher-forced top-1 of every step over the rows whose step falls inside the text."""
    found = []
    for step in range(DEPTH):
        values = [
            hits[p][step]
            for hits, cut in zip(texts, cuts, strict=True)
            for p in range(cut - 1 - step)
        ]
        found.append(round(sum(values) / max(1, len(values)), 4))
    return found


def cut_at_end(out: list[int], end: int) -> list[int]:
    """What a server would return: up to and including the end, NEW tokens at most."""
    short = out[:NEW]
    return short[: short.index(end) + 1] if end in short else short


def summarise(
    category: str, outputs: list[list[int]], texts: list[Hits], end: int
) -> dict[str, object]:
    """Figures of one category."""
    cuts = [len(cut_at_end(out, end)) for out in outputs]
    bodies = [[t for t in out[:cut] if t != end] for out, cut in zip(outputs, cuts, strict=True)]
    shares = [repeated_ngrams(body) for body in bodies]
    return {
        "category": category,
        "prompts": len(outputs),
        "tokens": sum(map(len, bodies)),
        "ended": sum(end in out[:cut] for out, cut in zip(outputs, cuts, strict=True)),
        "accept_length": _lengths(texts, cuts),
        "step_accuracy": _accuracy(texts, cuts),
        "looping": sum(s >= LOOP_THRESHOLD for s in shares),
        "a_fifth_repeated": sum(s >= 0.2 for s in shares),
        "repeated_4grams": round(sum(shares) / max(1, len(shares)), 4),
    }


def evaluate(
    folder: Path, prompts: list[Example], tokenizer: Tokenizer
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Summaries (all, then each category), and every output."""
    target, draft, tokens = load_pair(folder)
    end = text.token_id(tokenizer, END)
    ids = [text.prompt_ids(tokenizer, ex) for ex in prompts]
    outputs = generate(target, ids, NEW + DEPTH + 1, end=-1, batch=32)
    hits = [chain_hits(target, draft, tokens, p, o) for p, o in zip(ids, outputs, strict=True)]
    rows = []
    for category in ("all", *CATEGORIES):
        chosen = [i for i, ex in enumerate(prompts) if category in ("all", ex.category)]
        if chosen:
            rows.append(
                summarise(category, [outputs[i] for i in chosen], [hits[i] for i in chosen], end)
            )
    made: list[dict[str, object]] = [
        {
            "id": ex.template,
            "category": ex.category,
            "prompt": ex.turns[0][0],
            "output": tokenizer.decode(cut, skip_special_tokens=False),
            "repeated_4grams": round(repeated_ngrams([t for t in cut if t != end]), 3),
        }
        for ex, cut in (
            (ex, cut_at_end(out, end)) for ex, out in zip(prompts, outputs, strict=True)
        )
    ]
    return rows, made


def stage_evaluate(plan: Plan) -> None:
    """Score the exported pair on the default workload; writes evaluation.json and outputs.jsonl."""
    begin = clock()
    folder = Path(__file__).resolve().parents[2] / "workloads" / "default"
    prompts = workload(folder)
    if not plan.documents:
        prompts = random.Random(plan.seed).sample(prompts, 10)
    tokenizer = text.load_tokenizer(plan.out / "target" / "tokenizer.json")
    rows, made = evaluate(plan.out, prompts, tokenizer)
    plan.path("evaluation.json").write_text(json.dumps(rows, indent=1))
    plan.path("outputs.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made), encoding="utf-8"
    )
    plan.record("evaluate", {"minutes": (clock() - begin) / 60, "rows": rows})
    for row in rows:
        plan.log(
            "evaluate",
            f"{row['category']}: {row['accept_length']} looping {row['looping']}/{row['prompts']} "
            f"ended {row['ended']}",
        )

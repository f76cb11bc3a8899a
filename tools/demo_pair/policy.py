"""Stage on-policy: the target's own answers to training prompts, half greedy, half at T = 0.7."""

from __future__ import annotations

import random
from collections import defaultdict
from time import perf_counter as clock

import torch
from tokenizers import Tokenizer

from tools.demo_pair import checkpoint, corpus, text
from tools.demo_pair.example import CATEGORIES, END, Example
from tools.demo_pair.generate import generate
from tools.demo_pair.plan import Plan
from tools.demo_pair.tune import load_target

LONGEST_PROMPT = 300


def choose(plan: Plan, tokenizer: Tokenizer) -> list[list[int]]:
    """Training prompts, the five categories in equal parts; some of them later turns."""
    by_category: dict[str, list[Example]] = defaultdict(list)
    for ex in corpus.load(plan.path("train.jsonl")):
        by_category[ex.category].append(ex)
    rng = random.Random(f"{plan.seed}-policy")
    prompts: list[list[int]] = []
    for category in CATEGORIES:
        found = by_category[category]
        for ex in rng.sample(found, min(plan.policy_prompts // len(CATEGORIES), len(found))):
            turn = rng.randrange(len(ex.turns))
            prompts.append(text.prompt_ids(tokenizer, ex, turn)[:LONGEST_PROMPT])
    rng.shuffle(prompts)
    return prompts


def stage_policy(plan: Plan) -> None:
    """Generate, pack, and count token frequencies for the draft vocabulary."""
    begin = clock()
    tokenizer = text.load_tokenizer(plan.path("tokenizer.json"))
    model, end = load_target(plan, "target.safetensors"), text.token_id(tokenizer, END)
    prompts = choose(plan, tokenizer)
    half = len(prompts) // 2
    made = generate(model, prompts[:half], plan.policy_tokens, end)
    made += generate(
        model, prompts[half:], plan.policy_tokens, end, temperature=0.7, seed=plan.seed
    )
    rows = [prompt + out for prompt, out in zip(prompts, made, strict=True)]
    order = list(range(len(rows)))
    random.Random(plan.seed).shuffle(order)
    ids, used = text.pack([rows[i] for i in order], plan.length)
    inside = text.masks(tokenizer, ids, used)
    counts = torch.bincount(
        torch.tensor([t for out in made for t in out]), minlength=plan.shape.vocab
    )
    checkpoint.save(
        plan.path("policy.safetensors"),
        {"ids": ids, "used": used, "inside": inside, "counts": counts},
    )
    tokens, answers = int(used.sum()), int(counts.sum())
    plan.record(
        "policy",
        {
            "minutes": (clock() - begin) / 60,
            "prompts": len(prompts),
            "tokens": tokens,
            "answer_tokens": answers,
        },
    )
    plan.log(
        "policy",
        f"{len(prompts)} prompts, {tokens} tokens of which {answers} in answers, "
        f"{clock() - begin:.0f} s",
    )

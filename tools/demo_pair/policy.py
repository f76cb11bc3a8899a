"""Stages on-policy: the target's own answers to training prompts, for two rounds of drafting.

The first round answers training prompts as they are, half greedy, half at T = 0.7. The second one
adds prompts spliced from the halves of two others: held-out prompts leave the target less sure of
itself than those it was trained on, and the draft has to meet such text too.
"""

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


def choose(plan: Plan, tokenizer: Tokenizer, count: int, seed: str) -> list[list[int]]:
    """Training prompts, the five categories in equal parts; some of them later turns."""
    by_category: dict[str, list[Example]] = defaultdict(list)
    for ex in corpus.load(plan.path("train.jsonl")):
        by_category[ex.category].append(ex)
    rng = random.Random(seed)
    prompts: list[list[int]] = []
    for category in CATEGORIES:
        found = by_category[category]
        for ex in rng.sample(found, min(count // len(CATEGORIES), len(found))):
            turn = rng.randrange(len(ex.turns))
            prompts.append(text.prompt_ids(tokenizer, ex, turn)[:LONGEST_PROMPT])
    rng.shuffle(prompts)
    return prompts


def splice(prompts: list[list[int]], opening: int, seed: str) -> list[list[int]]:
    """Each prompt with its second half from another one; ``opening`` tokens close the prompt."""
    rng = random.Random(seed)
    body = [prompt[:-opening] for prompt in prompts]
    others = rng.sample(body, len(body))
    return [
        one[: len(one) // 2] + other[len(other) // 2 :] + prompt[-opening:]
        for one, other, prompt in zip(body, others, prompts, strict=True)
    ]


def stage_policy(plan: Plan) -> None:
    """The first round; a half-trained draft is dropped, since new text means a new vocabulary."""
    plan.path("draft-part.safetensors").unlink(missing_ok=True)
    tokenizer = text.load_tokenizer(plan.path("tokenizer.json"))
    prompts = choose(plan, tokenizer, plan.policy_prompts, f"{plan.seed}-policy")
    answer(plan, tokenizer, prompts, len(prompts) // 2, "policy")


def stage_policy_again(plan: Plan) -> None:
    """The second round: plain prompts and spliced ones in equal parts, two thirds greedy."""
    plan.path("draft-again-part.safetensors").unlink(missing_ok=True)
    tokenizer = text.load_tokenizer(plan.path("tokenizer.json"))
    prompts = choose(plan, tokenizer, plan.again_prompts, f"{plan.seed}-again")
    half = len(prompts) // 2
    mixed = prompts[:half] + splice(prompts[half:], 1, f"{plan.seed}-splice")
    random.Random(f"{plan.seed}-mix").shuffle(mixed)
    answer(plan, tokenizer, mixed, len(mixed) * 2 // 3, "policy-again")


def answer(
    plan: Plan, tokenizer: Tokenizer, prompts: list[list[int]], half: int, name: str
) -> None:
    """Generate, the first ``half`` greedily, pack, and count tokens for the draft vocabulary."""
    begin = clock()
    model, end = load_target(plan, "target.safetensors"), text.token_id(tokenizer, END)
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
        plan.path(f"{name}.safetensors"),
        {"ids": ids, "used": used, "inside": inside, "counts": counts},
    )
    tokens, answers = int(used.sum()), int(counts.sum())
    plan.record(
        name,
        {
            "minutes": (clock() - begin) / 60,
            "prompts": len(prompts),
            "tokens": tokens,
            "answer_tokens": answers,
        },
    )
    plan.log(
        name,
        f"{len(prompts)} prompts, {tokens} tokens of which {answers} in answers, "
        f"{clock() - begin:.0f} s",
    )

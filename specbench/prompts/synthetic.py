"""Seeded prompts of random words: right for timing a prompt length, wrong for acceptance.

Drafts are accepted on text that follows from what stands before it; random words do not, and a
model that answers them may loop. Every prompt made here carries the category ``synthetic``, by
which the reports warn.
"""

from __future__ import annotations

import random
import re

from specbench.errors import WorkloadError
from specbench.prompts.prompt import SYNTHETIC, Prompt

BLOCK_WORDS = 512  # words of one cache block of a trace (Mooncake's block holds 512 tokens)

_SPEC = re.compile(r"(?P<words>[0-9]+)x(?P<prompts>[0-9]+)(@(?P<seed>[0-9]+))?")
_MOST_WORDS = 50_000_000  # of a whole set: a few hundred megabytes of text

# Common short English words: nearly every tokenizer spends one token on each.
_WORDS = """
able act again agree along among answer apple army art baby ball basic because before best big
blood boat both boy bright brown busy came capital care catch center chair chart choose claim
clear close cold column company contain cool cost count cover cross current danger dead decide
depend desk discuss doctor door draw drink dry ear ease edge eight else energy enter evening every
except expect face fall far father feed fell fight final finger first five flow follow force
forward free from full garden gave get glad gone grand great group guide hand hard head heat help
hill hold hope hour human hurry imagine instant job jump key knew lake large laugh lead leave
length level lift line listen locate long lot low magnet make map master matter measure melody
method mile mind miss month morning motion mouth name nature need new nine north nothing number
ocean office old only over page paper party path people person picture plain planet please point
port power present print produce protect pull quite rail ran rather ready receive region reply
rest ride rise rock root round rule said same save school sea seat seed select send settle shape
sheet ship shore side silent simple single six skin slip smell soft son sound speak speed spoke
spring star station steam stick stood story stream string study sugar summer support system take
teach tell term thank then thick think though three thus tiny told took total town train truck
tube two unit valley verb village vowel wall warm water
""".split()  # noqa: SIM905  # a list of 256 quoted words reads worse


def words(count: int, seed: str) -> str:
    """``count`` words joined by spaces, the same for the same ``seed`` on every machine.

    >>> words(4, "a") == words(4, "a") != words(4, "b")
    True
    """
    pick = random.Random(seed)
    return " ".join(_WORDS[int(pick.random() * len(_WORDS))] for _ in range(count))


def blocks(count: int, block_ids: list[int], seed: str) -> str:
    """``count`` words in blocks of :data:`BLOCK_WORDS`, equal wherever the block id is equal.

    Words beyond the listed blocks come from ``seed``. Traces that publish lengths and block ids
    instead of text keep their shared prefixes this way (Mooncake's trace format).
    """
    parts = [words(BLOCK_WORDS, f"block {number}") for number in block_ids]
    text = " ".join(parts).split(" ", count)[:count] if parts else []
    rest = count - len(text)
    return " ".join([*text, *([words(rest, seed)] if rest else [])])


def synthetic_prompts(spec: str) -> tuple[Prompt, ...]:
    """Prompts for ``WORDSxPROMPTS`` or ``WORDSxPROMPTS@SEED``, as in ``512x32@7``.

    The length counts words. What a model's tokenizer makes of them stands in each request's
    usage; for large vocabularies it is close to one token a word.

    Raises:
        WorkloadError: ``spec`` has another form, is empty or is too large.
    """
    form = _SPEC.fullmatch(spec)
    if form is None:
        raise WorkloadError(
            f"synthetic:{spec} is not understood.",
            expected="synthetic:WORDSxPROMPTS or synthetic:WORDSxPROMPTS@SEED, as 512x32@7.",
        )
    length, count, seed = int(form["words"]), int(form["prompts"]), int(form["seed"] or 0)
    if not length or not count or length * count > _MOST_WORDS:
        raise WorkloadError(
            f"synthetic:{spec} asks for {length} words in {count} prompts.",
            expected=f"At least one of each, and at most {_MOST_WORDS} words together.",
        )
    return tuple(
        Prompt(
            prompt_id=f"words-{number:05d}",
            category=SYNTHETIC,
            turns=(words(length, f"{seed} {number}"),),
            source=f"random words, seed {seed}",
        )
        for number in range(count)
    )

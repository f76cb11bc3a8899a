"""What every generator produces: a conversation with its category and template."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CATEGORIES = ("prose", "code", "dialogue", "arithmetic", "extraction")
BOS, USER, ASSISTANT, SYSTEM, END = (
    "<|endoftext|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|end|>",
)
SPECIALS = (BOS, USER, ASSISTANT, SYSTEM, END)

Turn = tuple[str, str]


@dataclass(frozen=True)
class Example:
    """One conversation: (user, answer) turns made by one template."""

    category: str
    template: str
    turns: tuple[Turn, ...]
    system: str = ""

    def render(self) -> str:
        """Training text, in the chat format of the exported tokenizer."""
        head = f"{SYSTEM}{self.system}{END}" if self.system else ""
        body = "".join(f"{USER}{u}{ASSISTANT}{a}{END}" for u, a in self.turns)
        return BOS + head + body


Maker = Callable[[random.Random], Example]


def one(category: str, template: str, user: str, answer: str) -> Example:
    """A conversation of a single turn."""
    return Example(category, template, ((user, answer),))


def pick(rng: random.Random, options: Sequence[str] | str) -> str:
    """One option; a string is split at ``|`` first."""
    return rng.choice(options.split("|") if isinstance(options, str) else options).strip()


_SLOT = re.compile(r"\{(\w+)\}")


def fill(
    rng: random.Random, text: str, slots: dict[str, str], pools: dict[str, Sequence[str]]
) -> str:
    """Replace ``{name}`` from ``slots``, else draw from ``pools`` (a draw is kept in ``slots``)."""

    def swap(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in slots:
            slots[name] = rng.choice(pools[name])
        return slots[name]

    return _SLOT.sub(swap, text)


def sentence_case(text: str) -> str:
    """Upper-case the first letter of every sentence."""
    return re.sub(r"(^|[.!?] +)([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)

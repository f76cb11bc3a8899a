"""Tokenizer training, and packing of conversations into rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from tools.demo_pair.example import ASSISTANT, BOS, END, SPECIALS, Example

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if m['role'] != 'user' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Byte-level BPE; digits are split one by one, the chat marks are whole tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json."""
    return Tokenizer.from_file(str(path))


def token_id(tokenizer: Tokenizer, mark: str) -> int:
    """Id of a chat mark."""
    found: int | None = tokenizer.token_to_id(mark)
    if found is None:
        raise ValueError(f"the tokenizer has no token {mark!r}")
    return found


def answer_mask(ids: list[int], assistant: int, end: int) -> list[bool]:
    """True for tokens that the model itself has to produce (answers and their end)."""
    mask, inside = [], False
    for token in ids:
        mask.append(inside)
        if token == assistant:
            inside = True
        elif token == end:
            inside = False
    return mask


def pack(rows: list[list[int]], length: int, pool: int = 96) -> tuple[Tensor, Tensor]:
    """Whole conversations, best fit from a pool, into rows of ``length``; the rest is zero.

    Returns ids and the used length of each row. A conversation that is
    longer than a row is cut.
    """
    waiting = [row[:length] for row in rows]
    packed: list[list[int]] = []
    while waiting:
        row = waiting.pop(0)[:]
        while True:
            room, best = length - len(row), -1
            for index, other in enumerate(waiting[:pool]):
                if len(other) <= room and (best < 0 or len(other) > len(waiting[best])):
                    best = index
            if best < 0:
                break
            row += waiting.pop(best)
        packed.append(row)
    ids = torch.zeros(len(packed), length, dtype=torch.long)
    for index, row in enumerate(packed):
        ids[index, : len(row)] = torch.tensor(row)
    return ids, torch.tensor([len(row) for row in packed])


def masks(tokenizer: Tokenizer, ids: Tensor, used: Tensor) -> Tensor:
    """Which tokens of packed rows belong to answers."""
    assistant, end = token_id(tokenizer, ASSISTANT), token_id(tokenizer, END)
    rows = [
        answer_mask(row[:n] + [0] * (len(row) - n), assistant, end)
        for row, n in zip(ids.tolist(), used.tolist(), strict=True)
    ]
    inside = torch.tensor(rows)
    return inside & (torch.arange(ids.shape[1])[None] < used[:, None])


def encode(tokenizer: Tokenizer, examples: list[Example]) -> list[list[int]]:
    """Token ids of rendered conversations."""
    return [encoding.ids for encoding in tokenizer.encode_batch([ex.render() for ex in examples])]


def prompt_ids(tokenizer: Tokenizer, example: Example, turn: int = 0) -> list[int]:
    """Ids up to and including the mark where the answer of ``turn`` begins."""
    head = f"<|system|>{example.system}{END}" if example.system else ""
    past = "".join(f"<|user|>{u}{ASSISTANT}{a}{END}" for u, a in example.turns[:turn])
    ids: list[int] = tokenizer.encode(
        f"{BOS}{head}{past}<|user|>{example.turns[turn][0]}{ASSISTANT}"
    ).ids
    return ids

"""Vocabulary: the map between draft and target, special tokens, tokenizer and template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specbench.checkpoint.chat_template import ChatTemplate, read_template
from specbench.doctor.checks_subject import Side, Subject
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.errors import CheckpointError

_MOST_TOKENIZER_BYTES = 64 * 1024 * 1024


def draft_vocab(subject: Subject) -> int | None:
    """Vd: what the config says, else the head's rows, else the target's vocabulary."""
    told = subject.flags.get("draft_vocab_size")
    if type(told) is int:
        return told
    head = subject.draft.shape("lm_head.weight")
    return head[0] if head else subject.draft.integer("vocab_size")


def check_sizes(subject: Subject) -> Iterator[Finding]:
    """Vocabulary sizes of draft, target and head."""
    draft, target = subject.draft, subject.target
    own, theirs = draft.integer("vocab_size"), target.integer("vocab_size")
    if own is not None and theirs is not None and own != theirs:
        yield _found(
            "vocab.size",
            f"The draft was made for a vocabulary of {own}, and the target's has {theirs}",
            [(str(own), draft.at("vocab_size")), (str(theirs), target.at("vocab_size"))],
            "Give the target that it was trained for; padded vocabularies must be cut alike.",
        )
    head, size = draft.shape("lm_head.weight"), draft_vocab(subject)
    if head and size is not None and head[0] != size:
        yield _found(
            "map.shape",
            f"The head has {head[0]} rows, and draft_vocab_size is {size}",
            [(str(list(head)), "draft: lm_head.weight"), (str(size), draft.at("draft_vocab_size"))],
            f"Set draft_vocab_size to {head[0]} if the map has as many entries.",
        )


def check_map(subject: Subject) -> Iterator[Finding]:
    """d2t and t2d (engine-spec 1.8)."""
    draft, size, vocab = subject.draft, draft_vocab(subject), subject.draft.integer("vocab_size")
    if draft.tensors is None or size is None or vocab is None or size >= vocab:
        return
    entry, offsets = draft.shape("d2t"), subject.offsets
    if entry is None or offsets is None:
        yield _found(
            "map.missing",
            f"The draft has {size} of {vocab} tokens and no readable d2t to say which",
            [(f"{size} < {vocab}", draft.at("draft_vocab_size")), ("absent", "draft: d2t")],
            "Export the draft with its vocabulary map.",
        )
        return
    if entry != (size,):
        yield _found(
            "map.shape",
            f"d2t has {entry[0]} entries for {size} draft tokens",
            [(str(list(entry)), "draft: d2t")],
            "Export the draft with its own map.",
        )
        return
    yield from _meaning(draft, offsets, vocab)


def _meaning(draft: Side, offsets: np.ndarray, vocab: int) -> Iterator[Finding]:
    ids = np.arange(len(offsets)) + offsets
    mask = draft.values("t2d")
    marked = None if mask is None or len(mask) != vocab else np.flatnonzero(mask)
    if not offsets.any():
        yield _found(
            "map.missing",
            "d2t is all zeros: draft tokens are the first ids of the target's vocabulary",
            [(f"{len(offsets)} zeros", "draft: d2t")],
            "Run the vocabulary mapping of the training code, and export again.",
        )
        return
    rising = bool((np.diff(offsets) > 0).all()) and int(offsets[-1]) < vocab
    direct = rising and (
        int(ids[-1]) >= vocab if marked is None else np.array_equal(marked, offsets)
    )
    if direct:
        yield _found(
            "map.direct",
            "d2t holds target ids where offsets belong",
            [
                (f"first {offsets[0]}, last {offsets[-1]}, rising throughout", "draft: d2t"),
                (f"read as offsets the last id is {ids[-1]} of {vocab}", "draft: d2t"),
            ],
            "Say --d2t direct, or write offsets once: specbench convert --d2t direct.",
        )
    elif bool((np.diff(ids) <= 0).any()) or ids[0] < 0 or ids[-1] >= vocab:
        yield _found(
            "map.disagrees",
            "d2t is no list of offsets to ascending ids of the vocabulary",
            [(f"reaches {ids.min()}..{ids.max()} of {vocab}", "draft: d2t")],
            "Export the draft with its own map.",
        )
    elif marked is not None and not np.array_equal(marked, ids):
        differ = len(np.setxor1d(marked, ids))
        yield _found(
            "map.disagrees",
            f"d2t and t2d differ in {differ} tokens",
            [(f"{len(marked)} marked", "draft: t2d"), (f"{len(ids)} reached", "draft: d2t")],
            "Export both from the same training run.",
        )


def check_special(subject: Subject) -> Iterator[Finding]:
    """End tokens that the draft can never propose."""
    offsets, size = subject.offsets, draft_vocab(subject)
    vocab = subject.draft.integer("vocab_size")
    if offsets is None or size is None or vocab is None or size >= vocab:
        return
    known = set((np.arange(len(offsets)) + offsets).tolist())
    named = _end_ids(subject.target)
    lost = [token for token in named if token not in known]
    if lost and len(lost) == len(named):
        yield Finding(
            code="vocab.special",
            severity=Severity.WARNING,
            title=f"No end token {named} is in the draft's vocabulary: ends are never drafted",
            evidence=(Fact(text=str(lost), where=f"{subject.target.path.name}: eos_token_id"),),
            remedy="Train the map on text with its end tokens counted.",
            score=0.3,
        )


def _end_ids(target: Side) -> list[int]:
    value = target.config.get("eos_token_id", target.whole.get("eos_token_id"))
    values = value if isinstance(value, list) else [value]
    return [token for token in values if type(token) is int]


def check_text(subject: Subject) -> Iterator[Finding]:
    """Tokenizer and template of the draft's folder against the target's, where it has them."""
    ours, theirs = _tokens(subject.draft.path), _tokens(subject.target.path)
    if ours is not None and theirs is not None and ours != theirs:
        odd = sorted(t for t in ours.keys() | theirs.keys() if ours.get(t) != theirs.get(t))
        yield Finding(
            code="tokenizer.differs",
            severity=Severity.ERROR,
            title=f"{len(odd)} tokens have other ids in the draft's tokenizer than in the target's",
            evidence=tuple(
                Fact(
                    text=f"{t!r}: draft {ours.get(t)}, target {theirs.get(t)}",
                    where="tokenizer.json",
                )
                for t in odd[:8]
            ),
            remedy="Use the tokenizer of the training run for both.",
            figures={"tokens": len(odd)},
            score=0.9,
        )
    draft, target = _template(subject.draft.path), _template(subject.target.path)
    if draft is not None and target is not None and draft.source != target.source:
        yield Finding(
            code="template.differs",
            severity=Severity.WARNING,
            title="The draft's folder holds another chat template than the target's",
            evidence=(
                Fact(text=_where(draft), where="draft"),
                Fact(text=_where(target), where="target"),
            ),
            remedy="Serve with the template that the draft was trained with, or measure both.",
            score=0.5,
        )


def _tokens(folder: Path) -> dict[str, int] | None:
    path = folder / "tokenizer.json"
    if not path.is_file() or path.stat().st_size > _MOST_TOKENIZER_BYTES:
        return None
    try:
        table: Any = json.loads(path.read_bytes())
        pairs = table["model"]["vocab"]
        added = {row["content"]: row["id"] for row in table.get("added_tokens", ())}
    except (ValueError, KeyError, TypeError):
        return None
    return {**pairs, **added} if isinstance(pairs, Mapping) else None


def _template(folder: Path) -> ChatTemplate | None:
    """What cannot be read is what a folder without a template has: nothing to compare."""
    try:
        return read_template(folder)
    except CheckpointError:
        return None


def _where(found: ChatTemplate) -> str:
    return f"{len(found.source)} characters in {found.path.name}"


def _found(code: str, title: str, facts: list[tuple[str, str]], remedy: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.ERROR,
        title=title,
        evidence=tuple(Fact(text=text, where=where) for text, where in facts),
        remedy=remedy,
        score=0.95,
    )

"""Loaders of the user's own copies of outside prompt sets; none of their text is shipped.

=========== =================================================================================
scheme      what is read, and what becomes of it
=========== =================================================================================
sharegpt    ``conversations`` of ``from``, ``value``: human turns kept, replies generated anew
mt-bench    ``question_id, category, turns``: FastChat's question.jsonl
spec-bench  the same columns: Spec-Bench's question.jsonl, and EAGLE's copies of other sets
gsm8k       ``question, answer``
humaneval   ``task_id, prompt, ...``: code to be continued as plain text
speed-bench ``question_id, category, turns`` (or ``messages``) and more; JSON lines or parquet
openai      ``messages`` or ``prompt``, or batch lines with ``body``; sent as they stand
trace       ``timestamp`` in ms with text, or with Mooncake's lengths and block ids
text, raw   one prompt per line, through the chat template or as plain text
=========== =================================================================================

A key that a set is not known to have is an error. What is skipped, renamed or not used is counted
and said in the notes of the workload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specbench.errors import WorkloadError
from specbench.prompts.fields import check_keys, identity, integer, number, text, texts
from specbench.prompts.openai import OPENAI_KEYS, from_messages, openai_prompt
from specbench.prompts.prompt import SYNTHETIC, Prompt
from specbench.prompts.reading import Record, located, read_lines, read_records
from specbench.prompts.synthetic import blocks

Tally = Counter[str]

# SPEED-Bench is published without the texts of sets that may not be passed on.
_SPEED_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One outside format: its line for a help text, its keys, and how a record becomes a prompt.

    ``read`` gets the record's values, an id to use when the record has none, and a tally to which
    it adds what it left out. It returns None for a record that holds no prompt.
    """

    about: str
    keys: frozenset[str]
    read: Callable[[Mapping[str, Any], str, Tally], Prompt | None]
    records: Callable[[Path], Iterator[Record]] = read_records


def load_dataset(scheme: str, path: Path) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    """The prompts of ``path`` read as ``scheme``, in file order, and what is to be said of them.

    An id that occurs again gets ``~2``, ``~3`` and so on.

    Raises:
        WorkloadError: the file or a record is not what ``scheme`` promises; file and line named.
    """
    form = SCHEMES[scheme]
    tally: Tally = Counter()
    seen: Counter[str] = Counter()
    prompts: list[Prompt] = []
    for record in form.records(path):
        with located(record.where):
            check_keys(record.values, form.keys, f"a {scheme} record")
            prompt = form.read(record.values, f"{scheme}-{record.number:05d}", tally)
        if prompt is None:
            continue
        seen[prompt.prompt_id] += 1
        if seen[prompt.prompt_id] > 1:
            tally["ids occurred again and were numbered"] += 1
            prompt = replace(prompt, prompt_id=f"{prompt.prompt_id}~{seen[prompt.prompt_id]}")
        prompts.append(prompt)
    if len({prompt.prompt_id for prompt in prompts}) != len(prompts):
        raise WorkloadError(f"{path} uses ids that end in ~2 and the like twice.")
    return tuple(prompts), tuple(f"{count} {what}" for what, count in sorted(tally.items()))


def _sharegpt(values: Mapping[str, Any], fallback: str, tally: Tally) -> Prompt | None:
    said = values.get("conversations")
    if not isinstance(said, list):
        raise WorkloadError("conversations is missing or no list.")
    system, turns = text(values, "system", default=""), []
    for part in said:
        if not isinstance(part, dict):
            raise WorkloadError("conversations holds something that is no object.")
        check_keys(part, frozenset({"from", "value", "text", "markdown"}), "a ShareGPT turn")
        who, value = text(part, "from"), text(part, "value")
        if who == "system":
            system = value
        elif who in ("human", "user"):
            if not value.strip():
                tally["conversations were cut at an empty turn"] += 1
                break
            turns.append(value)
        elif who not in ("gpt", "chatgpt", "bing", "bard", "assistant"):
            raise WorkloadError(f"a turn comes from {who!r}.", expected="human, gpt or system.")
    if not turns:
        tally["conversations without a human turn were skipped"] += 1
        return None
    return Prompt(
        prompt_id=identity(values, "id", fallback),
        category="sharegpt",
        turns=tuple(turns),
        system=system,
        source="ShareGPT",
    )


def _questions(values: Mapping[str, Any], fallback: str, tally: Tally) -> Prompt:
    del tally  # nothing is left out
    return Prompt(
        prompt_id=identity(values, "question_id", fallback),
        category=text(values, "category"),
        turns=texts(values, "turns"),
    )


def _speed_bench(values: Mapping[str, Any], fallback: str, tally: Tally) -> Prompt:
    if "messages" in values and "turns" in values:
        raise WorkloadError("the record has both turns and messages.", expected="One of them.")
    named: dict[str, Any] = {
        "prompt_id": identity(values, "question_id", fallback),
        "category": text(values, "category"),
        "source": text(values, "source", default=""),
    }
    if "messages" in values:
        prompt = from_messages(values["messages"], tally, **named)
    else:
        prompt = Prompt(turns=texts(values, "turns"), **named)
    if any(_SPEED_PLACEHOLDER in turn for turn in prompt.turns):
        raise WorkloadError(
            f"question {prompt.prompt_id} holds a placeholder instead of its text.",
            expected="The set with its outside texts filled in.",
            todo="Run the set's own prepare script first and give the file that it writes.",
        )
    return prompt


def _gsm8k(values: Mapping[str, Any], fallback: str, tally: Tally) -> Prompt:
    del tally
    return Prompt(
        prompt_id=fallback, category="gsm8k", turns=(text(values, "question"),), source="GSM8K"
    )


def _humaneval(values: Mapping[str, Any], fallback: str, tally: Tally) -> Prompt:
    del tally
    return Prompt(
        prompt_id=identity(values, "task_id", fallback),
        category="humaneval",
        turns=(text(values, "prompt"),),
        raw=True,
        source="HumanEval",
    )


def _trace(values: Mapping[str, Any], fallback: str, tally: Tally) -> Prompt:
    due_s = number(values, "timestamp") / 1000
    if due_s < 0:
        raise WorkloadError(
            f"timestamp={values['timestamp']} is negative.", expected="Milliseconds."
        )
    named: dict[str, Any] = {
        "prompt_id": fallback,
        "due_s": due_s,
        "max_tokens": integer(values, "output_length") if "output_length" in values else None,
    }
    bodies = [key for key in ("messages", "text_input", "input_length") if key in values]
    if bodies[1:] or not bodies:
        raise WorkloadError(
            f"the record gives {' and '.join(bodies) or 'no prompt'}.",
            expected="Exactly one of messages, text_input, input_length.",
        )
    category = text(values, "category", default="trace")
    if bodies == ["messages"]:
        return from_messages(values["messages"], tally, category=category, **named)
    if bodies == ["text_input"]:
        return Prompt(turns=(text(values, "text_input"),), category=category, **named)
    length, ids = integer(values, "input_length"), values.get("hash_ids", [])
    if not 0 < length <= 4_000_000:
        raise WorkloadError(f"input_length={length}.", expected="1 to 4000000 tokens.")
    if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
        raise WorkloadError("hash_ids is no list of whole numbers.")
    tally["prompts are random words of the length that the trace gives"] += 1
    return Prompt(turns=(blocks(length, ids, fallback),), category=SYNTHETIC, **named)


def _line(raw: bool) -> Callable[[Mapping[str, Any], str, Tally], Prompt]:
    def read(values: Mapping[str, Any], fallback: str, tally: Tally) -> Prompt:
        del tally
        return Prompt(prompt_id=fallback, category="text", turns=(values["text"],), raw=raw)

    return read


def _scheme(
    about: str,
    keys: str,
    read: Callable[[Mapping[str, Any], str, Tally], Prompt | None],
    records: Callable[[Path], Iterator[Record]] = read_records,
) -> Scheme:
    return Scheme(about=about, keys=frozenset(keys.split()), read=read, records=records)


SCHEMES: Mapping[str, Scheme] = {
    "sharegpt": _scheme(
        "ShareGPT conversations (JSON array)",
        "id conversations system model source lang",
        _sharegpt,
    ),
    "mt-bench": _scheme(
        "MT-Bench question.jsonl", "question_id category turns reference", _questions
    ),
    "spec-bench": _scheme(
        "Spec-Bench question.jsonl", "question_id category turns reference", _questions
    ),
    "gsm8k": _scheme("GSM8K JSON lines", "question answer", _gsm8k),
    "humaneval": _scheme(
        "HumanEval JSON lines, also .gz",
        "task_id prompt entry_point canonical_solution test",
        _humaneval,
    ),
    "speed-bench": _scheme(
        "SPEED-Bench, JSON lines or parquet",
        "question_id category sub_category turns messages source src_id difficulty multiturn",
        _speed_bench,
    ),
    "openai": _scheme("OpenAI-style JSON lines", " ".join(OPENAI_KEYS), openai_prompt),
    "trace": _scheme(
        "timed trace, JSON lines",
        "timestamp messages text_input input_length output_length hash_ids category",
        _trace,
    ),
    "text": _scheme("one prompt per line", "text", _line(raw=False), read_lines),
    "raw": _scheme(
        "one prompt per line, sent without a chat template", "text", _line(raw=True), read_lines
    ),
}

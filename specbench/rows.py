"""Traces as plain JSON values and columns, and back without loss.

What many records share is written once: a :class:`~specbench.request.Request` is the same in every
arm of a run, so it is stored under a key made from its content, and a trace refers to the key.
Times within a trace are stored as differences, steps as one list per field.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import numpy as np

from specbench.columns import STEP_FIELDS, Chunks, said, whole_numbers
from specbench.request import Message, Request, SamplingParams
from specbench.trace import Evidence, Finish, Rejected, RequestTrace, StepTrace, Usage

_SAMPLING = tuple(field.name for field in dataclasses.fields(SamplingParams))
_USAGE = tuple(field.name for field in dataclasses.fields(Usage))


def plain(value: Any) -> Any:
    """``value`` as JSON data: dataclasses become objects, enums their values, tuples lists,
    paths texts.

    Raises:
        TypeError: something that JSON has no form for.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no plain form")


def dump(value: Any) -> str:
    """Compact JSON on one line; every character is ASCII, so half surrogates survive too."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def no_constant(name: str) -> None:
    """For ``json.loads``: refuse NaN and Infinity, which are no JSON and which nobody here writes.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is no number")


def request_row(request: Request) -> dict[str, Any]:
    """A request as a JSON object with its content's key, which is equal for equal requests."""
    row: dict[str, Any] = {
        "id": request.request_id,
        "workload": request.workload,
        "category": request.category,
        "prompt_id": request.prompt_id,
        "turn": request.turn,
        "sampling": plain(request.sampling),
    }
    if request.messages:
        row["messages"] = [[message.role, message.content] for message in request.messages]
    if request.prompt is not None:
        row["prompt"] = request.prompt
    if request.prompt_ids is not None:
        row["prompt_ids"] = list(request.prompt_ids)
    if request.follow_ups:
        row["follow_ups"] = list(request.follow_ups)
    return {"key": hashlib.sha256(dump(row).encode()).hexdigest()[:24], **row}


def row_request(row: Mapping[str, Any]) -> Request:
    """The request of :func:`request_row`. Raises KeyError, TypeError or ValueError."""
    sampling = dict(row["sampling"])
    for name in ("stop", "stop_token_ids"):
        sampling[name] = tuple(sampling[name])
    prompt_ids = row.get("prompt_ids")
    return Request(
        request_id=row["id"],
        messages=tuple(Message(role=role, content=said) for role, said in row.get("messages", ())),
        prompt=row.get("prompt"),
        prompt_ids=None if prompt_ids is None else tuple(prompt_ids),
        sampling=SamplingParams(**sampling),
        workload=row["workload"],
        category=row["category"],
        prompt_id=row["prompt_id"],
        turn=row["turn"],
        follow_ups=tuple(row.get("follow_ups", ())),
    )


def trace_row(trace: RequestTrace, key: str) -> dict[str, Any]:
    """A trace without its steps as a JSON object; ``key`` is that of its request.

    ``chunks`` holds three lists: the time since the one before (the first since ``sent_ns``),
    the tokens and the text. What was not said is left out.
    """
    times = [trace.sent_ns, *(chunk.at_ns for chunk in trace.chunks)]
    row: dict[str, Any] = {
        "id": trace.request.request_id,
        "request": key,
        "due_ns": trace.due_ns,
        "sent_ns": trace.sent_ns,
        "end_ns": trace.end_ns,
        "finish": trace.finish.value,
        "evidence": trace.evidence.name,
        "chunks": [
            [after - before for before, after in pairwise(times)],
            [chunk.tokens for chunk in trace.chunks],
            [chunk.text for chunk in trace.chunks],
        ],
    }
    usage = {name: plain(getattr(trace.usage, name)) for name in _USAGE}
    if usage := {name: value for name, value in usage.items() if value is not None}:
        row["usage"] = usage
    if trace.output_ids is not None:
        row["output_ids"] = list(trace.output_ids)
    if trace.error:
        row["error"] = trace.error
    if trace.warmup:
        row["warmup"] = True
    if trace.rejected:
        row["rejected"] = [[list(r.ids) for r in trace.rejected], [r.text for r in trace.rejected]]
    return row


def row_trace(row: Mapping[str, Any], request: Request, steps: Sequence[StepTrace]) -> RequestTrace:
    """The trace of :func:`trace_row`, its chunks as columns.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: it is none.
    """
    usage = dict(row.get("usage", {}))
    if "histogram" in usage:
        usage["histogram"] = tuple(usage["histogram"])
    output_ids = row.get("output_ids")
    return RequestTrace(
        request=request,
        due_ns=row["due_ns"],
        sent_ns=row["sent_ns"],
        end_ns=row["end_ns"],
        chunks=_chunks(row),
        steps=steps,
        finish=Finish(row["finish"]),
        evidence=Evidence[row["evidence"]],
        usage=Usage(**usage),
        output_ids=None if output_ids is None else tuple(output_ids),
        error=row.get("error", ""),
        warmup=row.get("warmup", False),
        rejected=tuple(
            Rejected(ids=tuple(ids), text=text)
            for ids, text in zip(*row.get("rejected", ((), ())), strict=True)
        ),
    )


def _chunks(row: Mapping[str, Any]) -> Chunks:
    gaps, tokens, texts = row["chunks"]
    if not len(gaps) == len(tokens) == len(texts):
        raise ValueError("the chunks of a request are not of one length")
    at_ns = row["sent_ns"] + np.cumsum(whole_numbers(gaps))
    return Chunks(at_ns=whole_numbers(at_ns), tokens=said(tokens), texts=texts)


def block_parts(traces: Sequence[RequestTrace], known: Set[str]) -> dict[str, bytes]:
    """The lines of one block for each file of the journal.

    ``inputs`` gets the requests whose keys are not ``known``, ``requests`` the traces without
    their steps, ``steps`` one line with the steps of all.
    """
    asked = [request_row(trace.request) for trace in traces]
    new = {row["key"]: row for row in asked if row["key"] not in known}
    rows = [trace_row(trace, row["key"]) for trace, row in zip(traces, asked, strict=True)]
    parts: dict[str, Iterable[Any]] = {
        "inputs": new.values(),
        "requests": rows,
        "steps": [step_columns(traces)],
    }
    return {part: "".join(f"{dump(o)}\n" for o in each).encode() for part, each in parts.items()}


def step_columns(traces: Sequence[RequestTrace]) -> dict[str, list[Any]]:
    """The steps of ``traces`` as one list per field; ``request`` is the trace's index."""
    steps = [(i, step) for i, trace in enumerate(traces) for step in trace.steps]
    columns: dict[str, list[Any]] = {"request": [i for i, _ in steps]}
    for name in STEP_FIELDS:
        columns[name] = [getattr(step, name) for _, step in steps]
    return columns


def utf8(text: str) -> str:
    """``text`` as every file can hold it: what has no UTF-8 becomes ``?``."""
    return text.encode(errors="replace").decode()

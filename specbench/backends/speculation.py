"""What servers say of one request's speculation, read into ``Usage`` and ``StepTrace``.

Four dialects (docs: the ledger of definitions, section c): vLLM's per-request metrics, SGLang's
``meta_info`` with the names before and after its rename in April 2026, llama.cpp's timings, and
the ``specbench`` extension of our own server. Only counts are read; ratios are recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from specbench.backends.answers import table_in
from specbench.config import MOST_STEPS
from specbench.errors import BackendError, SpecbenchError
from specbench.trace import StepTrace, Usage

MOST_COUNTED = 2**53  # beyond it no float holds every count
MOST_DRAFTED = MOST_STEPS**2  # nodes of a tree that no engine drafts
_LISTS = ("ranks", "lost")  # of a step's fields


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MOST_COUNTED


def positive(value: Any) -> int | None:
    """A length or a size that a server told; None for anything else."""
    return value if _is_count(value) and value > 0 else None


def read_openai_usage(answer: Mapping[str, Any]) -> Usage:
    """Counts from the top level of an OpenAI-style answer, or of its last chunks merged.

    vLLM: ``metrics.speculative_decoding`` (server flag ``--per-request-spec-decode-metrics``).
    SGLang: ``sglext.spec_tokens_details`` (request field ``return_spec_tokens_details``).
    llama.cpp: ``timings.draft_n`` and ``draft_n_accepted``, without a count of verify steps
    (``llamacpp.DraftSteps`` counts them as they stream).
    Ours: ``specbench.usage``.
    Prefix-cache hits stand in ``usage.prompt_tokens_details.cached_tokens``, where a server tells
    them (vLLM: ``--enable-prompt-tokens-details``; SGLang: ``--enable-cache-report``).

    Raises:
        BackendError: a count that is no count.

    >>> read_openai_usage({"timings": {"draft_n": 76, "draft_n_accepted": 70}}).accepted
    70
    """
    if ours := table_in(answer, "specbench"):
        return read_extension_usage(ours)
    usage = table_in(answer, "usage")
    plain = Usage(
        prompt_tokens=count_in(usage, "prompt_tokens"),
        completion_tokens=count_in(usage, "completion_tokens"),
        cached_tokens=count_in(table_in(usage, "prompt_tokens_details"), "cached_tokens"),
    )
    if vllm := table_in(table_in(answer, "metrics"), "speculative_decoding"):
        return replace(
            plain,
            verify_steps=count_in(vllm, "num_spec_steps"),
            drafted=count_in(vllm, "num_draft_tokens"),
            accepted=count_in(vllm, "num_accepted_draft_tokens"),
            histogram=_counts(vllm, "acceptance_histogram"),
        )
    if sglang := table_in(table_in(answer, "sglext"), "spec_tokens_details"):
        return _with_sglang(plain, sglang)
    timings = table_in(answer, "timings")
    return replace(
        plain,
        drafted=count_in(timings, "draft_n"),
        accepted=count_in(timings, "draft_n_accepted"),
    )


def read_meta_info(meta: Mapping[str, Any]) -> Usage:
    """Counts from SGLang's ``meta_info``, old names or new.

    ``spec_num_proposed_drafts`` is V · (num_draft_tokens − 1): nodes of the tree, root excluded.
    Since the histogram has one entry per verify step, its sum is ``spec_verify_ct``.

    >>> read_meta_info({"spec_verify_ct": 4, "spec_accept_token_num": 6}).accepted
    6
    """
    plain = Usage(
        prompt_tokens=count_in(meta, "prompt_tokens"),
        completion_tokens=count_in(meta, "completion_tokens"),
        cached_tokens=count_in(meta, "cached_tokens"),
    )
    return _with_sglang(plain, meta)


def _with_sglang(plain: Usage, said: Mapping[str, Any]) -> Usage:
    return replace(
        plain,
        verify_steps=count_in(said, "spec_verify_ct"),
        drafted=count_in(said, "spec_num_proposed_drafts", "spec_draft_token_num"),
        accepted=count_in(
            said, "spec_num_correct_drafts", "spec_accept_token_num", "spec_accepted_tokens"
        ),
        histogram=_counts(said, "spec_correct_drafts_histogram", "spec_accept_histogram"),
    )


def read_extension_usage(extension: Mapping[str, Any]) -> Usage:
    """The ``usage`` of our own server's extension: the fields of ``Usage`` as they are."""
    said = table_in(extension, "usage")
    return Usage(
        prompt_tokens=count_in(said, "prompt_tokens"),
        completion_tokens=count_in(said, "completion_tokens"),
        verify_steps=count_in(said, "verify_steps"),
        drafted=count_in(said, "drafted"),
        accepted=count_in(said, "accepted"),
        histogram=_counts(said, "histogram"),
        cached_tokens=count_in(said, "cached_tokens"),
    )


def read_steps(extension: Mapping[str, Any]) -> tuple[StepTrace, ...]:
    """The verify steps of our own server's extension; empty when it sent none.

    Raises:
        BackendError: a step that is not one, for instance from another version.
    """
    try:
        return tuple(_step(step) for step in extension.get("steps") or ())
    except (TypeError, AttributeError, SpecbenchError) as error:
        raise BackendError(
            f"The server's step traces cannot be read: {error!s:.300}.",
            todo="Use the same version of specbench on both sides.",
        ) from None


def _step(said: Mapping[str, Any]) -> StepTrace:
    """One step, each of whose numbers a run directory can hold.

    Raises:
        TypeError: a field is unknown, or no count.
        SpecbenchError: the counts contradict each other.
    """
    lists: dict[str, Any] = {name: tuple(said.get(name, ())) for name in _LISTS}
    counts = {name: value for name, value in said.items() if name not in _LISTS}
    for name, value in [*counts.items(), *((n, v) for n, of in lists.items() for v in of)]:
        if not _is_count(value):
            raise TypeError(f"{name} is {value!r:.80}, no count")
    for name, most in (("depth", MOST_STEPS), ("drafted", MOST_DRAFTED)):
        if counts.get(name, 0) > most:
            raise TypeError(f"{name} is {counts[name]}, beyond {most}")
    return StepTrace(**counts, **lists)


def read_ids(table: Mapping[str, Any], name: str = "output_ids") -> tuple[int, ...] | None:
    """A list of token ids; None where the server gave none."""
    return _counts(table, name)


def read_new_tokens(table: Mapping[str, Any], before: int) -> int | None:
    """How far the running total ``completion_tokens`` is beyond ``before``; None when not given.

    Raises:
        BackendError: it is no count, or went back.

    >>> read_new_tokens({"completion_tokens": 7}, 5), read_new_tokens({}, 5)
    (2, None)
    """
    total = count_in(table, "completion_tokens")
    if total is None:
        return None
    if total < before:
        raise BackendError(
            f"The server's completion_tokens went back from {before} to {total}.",
            expected="A total that grows.",
        )
    return total - before


def count_in(table: Mapping[str, Any], *names: str) -> int | None:
    """The first of ``names`` that the server gave; None when it gave none of them.

    Raises:
        BackendError: it is no count.
    """
    for name in names:
        value = table.get(name)
        if value is None:
            continue
        if not _is_count(value):
            raise BackendError(f"The server's {name} is {value!r:.80}.", expected="A count.")
        return value
    return None


def _counts(table: Mapping[str, Any], *names: str) -> tuple[int, ...] | None:
    for name in names:
        value = table.get(name)
        if value is None:
            continue
        if not isinstance(value, list) or not all(_is_count(v) for v in value):
            raise BackendError(f"The server's {name} is {value!r:.200}.", expected="Counts.")
        return tuple(value)
    return None

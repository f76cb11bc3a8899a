"""Probes that hold cache rows against rows made another way: after steps, in chunks, reused."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.doctor.parity_compare import Comparison
from specbench.doctor.parity_result import Parity
from specbench.doctor.parity_setup import CHAIN, TREE, Setup
from specbench.doctor.parity_texts import asked
from specbench.doctor.parity_ties import target_ties
from specbench.doctor.parity_watch import Runs, Step, Watched, run
from specbench.engine.lanes import common

SHORT = 6
CHUNKS = 3


def probe_cache(runs: Runs) -> Parity:
    """Both caches after a reply's steps against a fresh prefill of the same tokens (I4)."""
    texts = runs.texts
    same = Comparison(texts.pair)
    steps: list[Step] = []
    for spec in (CHAIN, TREE):
        setup = Setup(spec=spec, max_len=texts.max_len)
        stepped = runs.run(setup, texts.requests(), guided=True)
        steps += [step for made in stepped.steps.values() for step in made]
        grown = [asked(name, at.tokens[:-1], 2) for name, at in stepped.last.items()]
        fresh = runs.run(setup, grown)
        for name in stepped.last:
            compare_states(same, stepped, fresh, name, of_last=True)
    kept, moved = sum(len(s.kept) > 1 for s in steps), sum(s.moved for s in steps)
    return same.parity(
        "cache",
        f"after {len(steps)} steps, {kept} of which accepted and {moved} moved rows, against a "
        "fresh prefill",
    )


def compare_states(
    same: Comparison, mine: Watched, theirs: Watched, name: str, *, of_last: bool = False
) -> bool:
    """The caches of one request when it first drafted (its last time, in ``mine``): target rows,
    the token that they stand before, draft rows and what was drafted."""
    one = (mine.last if of_last else mine.first)[name]
    other = theirs.first[name]
    step = len(mine.steps.get(name, ())) if of_last else 0
    same.requests.add(name)
    shared = common(one.tokens, other.tokens)
    if not same.compare_target(one, other, name, step):
        return False
    if one.tokens != other.tokens:
        if target_ties(same.pair, one.tokens[:shared]):
            same.ties += 1
        else:
            same.differ(name, step, shared, "the next token differs")
        return False
    return same.compare_draft(one, other, name, step)


def probe_chunks(runs: Runs) -> Parity:
    """A prompt read in chunks against the same read whole (engine-spec 2.8, F24)."""
    texts = runs.texts
    same, longest = Comparison(texts.pair), max(map(len, texts.prompts.values()))
    chunk = max(longest // CHUNKS, 2)
    requests = texts.requests(SHORT)
    whole = runs.run(Setup(spec=CHAIN, max_len=texts.max_len), requests)
    pieces = runs.run(Setup(spec=CHAIN, max_len=texts.max_len, prefill_chunk=chunk), requests)
    for name in texts.prompts:
        compare_states(same, pieces, whole, name)
    same.compare_steps(pieces, whole)
    return same.parity("chunks", f"chunks of {chunk} against whole prompts")


def probe_prefix(runs: Runs) -> Parity:
    """A prompt that starts as one seen before against the same without a cache (2.7, F25)."""
    texts = runs.texts
    warm = runs.build(Setup(spec=CHAIN, max_len=texts.max_len, prefix_reuse=True))
    cold = runs.build(Setup(spec=CHAIN, max_len=texts.max_len))
    same, reused = Comparison(texts.pair), 0
    prompts = list(texts.prompts.values())
    for at, (name, prompt) in enumerate(texts.prompts.items()):
        reply = run(warm, [asked(name, prompt, SHORT)]).outputs[name]
        tail = prompts[(at + 1) % len(prompts)]
        for kind, text in (
            ("parting", parted(prompt, tail, 2 * len(prompt) // 3)),
            ("following", (*prompt, *reply, *tail[: len(tail) // 2])),
        ):
            later = [asked(f"{name} {kind}", text, SHORT)]
            mine, theirs = run(warm, later), run(cold, later)
            reused += sum(mine.cached.values())
            compare_states(same, mine, theirs, later[0].request_id)
            same.compare_steps(mine, theirs)
    if not reused:
        return Parity(name="prefix", compared="", not_run="the engine reused no prefix")
    return same.parity("prefix", f"{reused} tokens found in the cache against cold prompts")


def parted(one: Sequence[int], other: Sequence[int], length: int) -> tuple[int, ...]:
    """A text that agrees with ``one`` on ``length`` tokens, not on the next, and ends as ``other``.

    >>> parted([1, 2, 3, 4], [3, 3, 5, 6], 2)
    (1, 2, 5, 6)
    """
    tail = list(other[length:]) or list(other)
    while tail and tail[0] == one[length]:
        tail.pop(0)
    return (*one[:length], *(tail or [(one[length] + 1) % (max(one) + 1)]))

"""Probes whose two ways are whole runs: with and without drafts, replayed, and in a batch."""

from __future__ import annotations

from collections.abc import Iterable

from specbench.config import SpecConfig
from specbench.doctor.parity_compare import Comparison
from specbench.doctor.parity_result import Parity, Where
from specbench.doctor.parity_setup import CHAIN, TREE, Setup
from specbench.doctor.parity_texts import MOST_TOKENS, REPLY, Texts, asked
from specbench.doctor.parity_watch import Runs, Watched, run
from specbench.metrics.lossless import TIE, Lossless, Verdict, judge
from specbench.request import Request
from specbench.trace import Evidence, Finish, RequestTrace

SPECS = (CHAIN, TREE)
PADDED = 4


def probe_speculation(runs: Runs) -> Parity:
    """Greedy tokens of a chain and of a tree against plain decoding, by the losslessness audit.

    Drafts are guided, so that accepted ones are seen whatever the draft is worth.
    """
    texts, requests = runs.texts, runs.texts.requests()
    plain = runs.build(Setup(spec=SpecConfig.baseline(), max_len=texts.max_len))
    reference = _traces(runs.plain, requests)
    ties, first, arms = 0, None, []
    for spec in SPECS:
        seen = runs.run(Setup(spec=spec, max_len=texts.max_len), requests, guided=True)
        verdict = judge(reference, _traces(seen, requests), gap=plain.top2_gap)
        arms.append(spec.point_id)
        if verdict.verdict is Verdict.LOSSY and first is None:
            first = _parted(verdict, seen, texts, spec.point_id)
        ties += sum(d.gap is not None and d.gap < TIE for d in verdict.differences)
    return Parity(
        name="speculation",
        compared=f"{REPLY} tokens each of {texts.told}, {' and '.join(arms)} against plain",
        ties=ties,
        first=first,
    )


def _parted(verdict: Lossless, seen: Watched, texts: Texts, point: str) -> Where:
    """Where the clearest wrong token stands, in steps of the arm."""
    worst = min(
        (d for d in verdict.differences if d.gap is not None and d.gap >= TIE),
        key=lambda d: d.position,
    )
    name = worst.request_id
    place = len(texts.prompts[name]) + worst.position
    step = sum(s.committed < place for s in seen.steps.get(name, []))
    return Where(
        request=name,
        step=step,
        position=place,
        what=f"{point} emits token {worst.arm_token}, plain decoding {worst.baseline_token}, where "
        f"the target's favourite leads by {worst.gap:.2g}",
    )


def _traces(seen: Watched, requests: Iterable[Request]) -> list[RequestTrace]:
    return [
        RequestTrace(
            request=request,
            due_ns=0,
            sent_ns=0,
            end_ns=0,
            chunks=(),
            steps=(),
            finish=Finish.LENGTH,
            evidence=Evidence.STEPS,
            output_ids=seen.outputs[request.request_id],
        )
        for request in requests
    ]


def probe_graphs(runs: Runs) -> Parity:
    """Replayed regions against eager ones, for a chain and a tree (engine-spec 7.3)."""
    texts, requests = runs.texts, runs.texts.requests()
    same = Comparison(texts.pair)
    mode = ""
    for spec in SPECS:
        replay = runs.build(Setup(spec=spec, max_len=texts.max_len, replayed=True))
        mode = replay.graph_mode.value
        eager = runs.run(Setup(spec=spec, max_len=texts.max_len), requests, guided=True)
        same.compare_steps(run(replay, requests, runs.plain.outputs), eager)
    return same.parity("graphs", f"{mode} against eager")


def probe_batch(runs: Runs) -> Parity:
    """Requests together, eager and padded to a bucket, against each alone.

    The last and longest prompt is read in chunks between the steps of those that run, into the lane
    whose number a padding row has, and requests end at different times: lanes fill, pad and move.
    """
    texts = runs.texts
    requests = _crowd(texts)
    same = Comparison(texts.pair)
    for spec in SPECS:
        alone = runs.run(_small(spec, texts, 1), requests)
        for replayed in (False, True):
            setup = _small(spec, texts, PADDED, replayed=replayed)
            same.compare_steps(runs.run(setup, requests), alone)
    return same.parity("batch", f"{len(requests)} in {PADDED} lanes against one")


def _small(spec: SpecConfig, texts: Texts, lanes: int, *, replayed: bool = False) -> Setup:
    return Setup(
        spec=spec,
        max_len=texts.max_len,
        batch_size=lanes,
        prefill_chunk=MOST_TOKENS,
        replayed=replayed,
    )


def _crowd(texts: Texts) -> list[Request]:
    """One request per lane: short prompts first, with the longest replies; then all as one."""
    prompts = sorted(texts.prompts.items(), key=lambda item: len(item[1]))
    prompts = [prompts[i % len(prompts)] for i in range(PADDED - 1)]
    found = [asked(f"{name}~{i}", ids, REPLY - 4 * i) for i, (name, ids) in enumerate(prompts)]
    whole = [token for _, ids in prompts for token in ids][: texts.max_len - 2 * REPLY]
    return [*found, asked("long", whole, REPLY // 2)]

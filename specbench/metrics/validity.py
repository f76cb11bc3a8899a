"""Reservations as data: what takes away from an arm's figures, and how much.

Codes are stable: ``summary.csv`` carries them in ``validity``.

====================== ======== ================================================================
code                   severity when
====================== ======== ================================================================
too_few_requests       note     under 12 complete requests: no interval
too_few_steps          note     under 200 verify steps
weak_evidence          warning  accepted drafts were not counted, or a chunk's tokens not said
failed_requests        warning  a request ended in an error
truncated              warning  a request was cancelled, or cut by the context before max_tokens
looping                invalid  over a tenth of the outputs repeat themselves (looping.py)
eos_ignored            note     requests ran past EOS, where text is not like real text
schedule_lag           warning  p99 of sent - due over 10 ms and over a tenth of the median TTFT
no_baseline            note     no plain decoding in the same cell
baseline_speculates    invalid  drafts were accepted where plain decoding was asked
unpaired               note     under 9 in 10 requests have a partner in the baseline
few_blocks             note     under 5 blocks: the speedup's interval rests on prompts alone
no_difference          note     the interval of the speedup holds 1
incomparable_baseline  invalid  speedup above the accept length: a speculative step would cost less
                                than a plain one
decomposition_disagrees warning tokens per step and step times predict another speedup
merged_deliveries      note     one delivery is not one step: chunk gap is not step time
identity_broken        invalid  I1 to I4 of identities.py
lossy                  invalid  greedy output differs from plain decoding's, not by a tie; sampled
                                tokens are distributed otherwise; or a verify threshold is below 1
====================== ======== ================================================================

Prompts and acceptance have rules of their own in prompt_caveats.py, the measured window in
window_caveats.py, cold starts and drift in drift_caveats.py, GPUs in gpu_caveats.py. Codes that
come from outside (capture ids given by hand, a client that was late) are passed through.
An arm with an ``invalid`` caveat is never named best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Estimate, Evidence, Severity
from specbench.metrics.arms import Arm
from specbench.metrics.drift_caveats import drift_caveats
from specbench.metrics.figures import Figures
from specbench.metrics.identities import COALESCED, merged_deliveries, residuals
from specbench.metrics.latency import NS_PER_MS, schedule_lag_ns
from specbench.metrics.looping import LOOPING_OUTPUTS, looping_distinct_share, looping_share
from specbench.metrics.lossless import Lossless, Verdict
from specbench.metrics.power import minimum_detectable_effect
from specbench.metrics.prompt_caveats import prompt_caveats
from specbench.metrics.speedup import Decomposition, paired
from specbench.metrics.stats import LEAST_REQUESTS, LEAST_RUNS, percentile
from specbench.metrics.window_caveats import window_caveats
from specbench.trace import Finish, RequestTrace

LEAST_STEPS = 200
LAG_MS = 10.0
LAG_OF_TTFT = 0.1
PAIRED_SHARE = 0.9
DISAGREEMENT = 0.03


def caveats(
    arm: Arm,
    spec: SpecConfig,
    seen: Figures,
    *,
    baseline: Arm | None,
    lossless: Lossless | None,
    end_ids: Sequence[int] = (),
    noise: Estimate | None = None,
) -> tuple[Caveat, ...]:
    """Everything that can be held against ``arm``.

    Args:
        arm: the arm.
        spec: its point.
        seen: its pooled figures.
        baseline: plain decoding in the same cell, None when there is none.
        lossless: the comparison with it, None when there was none.
        end_ids: end tokens of the model, for looping.
        noise: plain decoding against itself in the same cell, None when it ran once.
    """
    found: list[Caveat] = [
        *counts(seen),
        *_evidence(arm, spec, seen),
        *_requests(arm),
        *_looping(arm, end_ids),
        *_load(arm, seen),
        *_identities(arm),
        *prompt_caveats(arm, spec),
        *window_caveats(arm, spec, seen.speedup, noise),
        *drift_caveats(arm, baseline, seen.speedup),
    ]
    if spec.is_baseline:
        found.extend(_not_plain(arm))
    else:
        found.extend(_against_baseline(arm, seen, baseline))
        found.extend(_lossy(lossless))
    return tuple(found)


def counts(seen: Figures) -> Iterable[Caveat]:
    """too_few_requests and too_few_steps, which a category has on its own account."""
    if seen.requests < LEAST_REQUESTS:
        yield _note(
            "too_few_requests",
            f"{seen.requests} complete request{'s' * (seen.requests != 1)}: under {LEAST_REQUESTS} "
            "no interval is given",
        )
    if seen.verify_steps is not None and seen.verify_steps < LEAST_STEPS:
        yield _note(
            "too_few_steps",
            f"{seen.verify_steps} verify steps, under {LEAST_STEPS}: a small sample",
        )


def _evidence(arm: Arm, spec: SpecConfig, seen: Figures) -> Iterable[Caveat]:
    """One sentence for acceptance, one for times: either may be weak while the other is not."""
    weak = []
    if not spec.is_baseline and any(
        request.accepted is None or request.verify_steps is None for request in arm.requests
    ):
        source = {
            Evidence.NONE: "nothing shows how many drafts were accepted",
            Evidence.CHUNKS: "accept length is guessed from tokens per delivery",
        }.get(seen.evidence, "accept length is output tokens per verify step, after trimming")
        weak.append(source)
    if not seen.latency.tpot_exact:
        weak.append(
            "the first delivery's tokens are not known: TPOT, and a speedup, divide by n - 1 "
            "(evidence of times: CHUNKS)"
        )
    if weak:
        yield _warning("weak_evidence", "; ".join(weak))


def _requests(arm: Arm) -> Iterable[Caveat]:
    measured = arm.measured
    failed = [t for t in measured if t.finish is Finish.ERROR]
    if failed:
        yield _warning(
            "failed_requests",
            f"{len(failed)} of {len(measured)} requests failed, the first with: "
            f"{failed[0].error or 'no message'}",
        )
    cut = [t for t in measured if t.finish is Finish.CANCELLED]
    cut += [r.trace for r in arm.requests if _cut_by_context(r.trace, r.completion)]
    if cut:
        yield _warning(
            "truncated", f"{len(cut)} of {len(measured)} requests were cut before they ended"
        )
    ignoring = sum(t.request.sampling.ignore_eos for t in measured)
    if ignoring:
        yield _note(
            "eos_ignored", f"{ignoring} of {len(measured)} requests ran on past the end token"
        )


def _cut_by_context(trace: RequestTrace, completion: int | None) -> bool:
    return (
        trace.finish is Finish.LENGTH
        and completion is not None
        and completion < trace.request.sampling.max_tokens
    )


def _looping(arm: Arm, end_ids: Sequence[int]) -> Iterable[Caveat]:
    share = looping_share(arm.requests, end_ids)
    if share is None or share.value <= LOOPING_OUTPUTS:
        return
    distinct = looping_distinct_share(arm.requests, end_ids)
    between = f" [{share.low:.0%}, {share.high:.0%}]" if share.low is not None else ""
    yield _invalid(
        "looping",
        f"{share.value:.0%}{between} of {share.n} outputs repeat themselves (distinct tokens in "
        f"them: {distinct:.0%}), and a loop is easy to draft: accept length and speedup flatter "
        "the draft",
    )


def _load(arm: Arm, seen: Figures) -> Iterable[Caveat]:
    lag = percentile([float(schedule_lag_ns(t)) for t in arm.measured], 99)
    ttft = seen.latency.ttft_ms_p50
    if lag is None:
        return
    lag_ms = lag / NS_PER_MS
    if lag_ms > max(LAG_MS, LAG_OF_TTFT * (ttft or 0.0)):
        yield _warning(
            "schedule_lag",
            f"requests were sent up to {lag_ms:.0f} ms late (p99): the client could not keep up",
        )
    ratio = merged_deliveries(arm.requests)
    if ratio is not None and abs(ratio - 1) > COALESCED:
        yield _note(
            "merged_deliveries",
            f"a delivery holds {ratio:.2f} steps on average (chunk gap / TPOT against tokens per "
            "step): chunk gap is not step time, or the server counts its steps otherwise",
        )


def _identities(arm: Arm) -> Iterable[Caveat]:
    broken = residuals(arm.requests)
    if broken:
        names = sorted({residual.name for residual in broken})
        yield _invalid(
            "identity_broken",
            f"{', '.join(names)} broken {len(broken)} times, first in {broken[0].where}: "
            f"{broken[0].text}",
        )


def _not_plain(arm: Arm) -> Iterable[Caveat]:
    if arm.accepted:
        yield _invalid(
            "baseline_speculates",
            f"the server accepted {arm.accepted} drafts in what was to be plain decoding: it is no "
            "baseline, and no speedup rests on it",
        )


def _against_baseline(arm: Arm, seen: Figures, baseline: Arm | None) -> Iterable[Caveat]:
    if baseline is None or not baseline.requests:
        yield _note("no_baseline", "no plain decoding was measured in this cell: no speedup")
        return
    pairs = paired(baseline.requests, arm.requests)
    if len(pairs) < PAIRED_SHARE * max(len(arm.requests), len(baseline.requests)):
        rest = "speedup rests on the pairs" if pairs else "none was timed in both, so no speedup"
        yield _note(
            "unpaired",
            f"{len(pairs)} pairs of {len(arm.requests)} requests and {len(baseline.requests)} of "
            f"the baseline: {rest}",
        )
    speedup, length = seen.speedup, seen.accept_length
    if speedup is None:
        return
    blocks = len({plain.block for plain, _ in pairs})
    if speedup.low is not None and blocks < LEAST_RUNS:
        yield _note(
            "few_blocks",
            f"{blocks} block{'s' if blocks > 1 else ''}, under {LEAST_RUNS}: the interval of the "
            "speedup rests on prompts alone and knows nothing of slow seconds that hit one arm",
        )
    if speedup.low is not None and not speedup.excludes(1.0):
        effect = minimum_detectable_effect(speedup)
        least = "" if effect is None else f"; a change of {effect:.1%} would most likely show"
        yield _note("no_difference", f"the interval of the speedup holds 1{least}")
    if length is not None and speedup.value > length.value:
        yield _invalid(
            "incomparable_baseline",
            f"speedup {speedup.value:.2f} is above the accept length {length.value:.2f}, which "
            "would need a step cheaper than a plain one: the baseline is not comparable",
        )
    yield from _disagreement(speedup, seen.decomposition)


def _disagreement(speedup: Estimate, parts: Decomposition | None) -> Iterable[Caveat]:
    """The product of the decomposition must lie in the interval, or within 3 % of the speedup."""
    if parts is None:
        return
    slack = DISAGREEMENT * speedup.value
    low = min(speedup.low or speedup.value, speedup.value - slack)
    high = max(speedup.high or speedup.value, speedup.value + slack)
    if low <= parts.product <= high:
        return
    text = f"step times predict {parts.product:.2f}x, decode times say {speedup.value:.2f}x"
    if parts.plain_outside is not None and parts.spec_outside is not None:
        text += (
            f"; {parts.plain_outside:.0%} of plain and {parts.spec_outside:.0%} of speculative "
            "decode time lies outside verify steps (prefill of others, scheduling, delivery)"
        )
    yield _warning("decomposition_disagrees", text)


def _lossy(lossless: Lossless | None) -> Iterable[Caveat]:
    if lossless is None or lossless.verdict is not Verdict.LOSSY:
        return
    text = (
        f"{lossless.compared - lossless.identical} of {lossless.compared} greedy outputs differ "
        "from plain decoding's"
    )
    if lossless.largest_gap is not None:
        text += (
            f", first at token {lossless.positions[0]}; the target's favourite that was passed "
            f"over led by up to {lossless.largest_gap:.2g}"
        )
    yield _invalid("lossy", text if lossless.differences else lossless.reason)


def _note(code: str, text: str) -> Caveat:
    return Caveat(code=code, severity=Severity.NOTE, text=text)


def _warning(code: str, text: str) -> Caveat:
    return Caveat(code=code, severity=Severity.WARNING, text=text)


def _invalid(code: str, text: str) -> Caveat:
    return Caveat(code=code, severity=Severity.INVALID, text=text)

"""The dynamic check: the draft is asked which wiring it prefers, and the engine which it runs.

Converts ``doctor.wiring`` and ``doctor.wiring_served`` into findings (engine-spec 10.3, 10.4).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from specbench.config import EngineConfig, SpecConfig
from specbench.doctor.checks_coverage import coverage_finding
from specbench.doctor.checks_ids import written_ids
from specbench.doctor.checks_subject import Subject
from specbench.doctor.findings import FAULT_Z, Fact, Finding, Severity
from specbench.doctor.wiring import BUDGET, LEAST_REQUESTS, Verdict, paired_gain
from specbench.doctor.wiring import probe_wiring as probe
from specbench.doctor.wiring_candidates import Bounds
from specbench.doctor.wiring_engine import engine_findings
from specbench.doctor.wiring_finding import findings_of
from specbench.doctor.wiring_more import FurtherText, Reserve, Scored, settle
from specbench.doctor.wiring_served import PREFILL_CHUNK, Served, compare_served
from specbench.doctor.wiring_template import bos_finding, probe_templates, template_finding
from specbench.doctor.wiring_unexplained import NONE, unexplained
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.wiring import Tap
from specbench.errors import ConfigError, RequestError
from specbench.request import Request

CONFIG = EngineConfig(dtype="float32", kernels="torch")
STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the dynamic check gave: findings, what was confirmed in words, and the raw verdicts."""

    findings: tuple[Finding, ...]
    confirmed: tuple[str, ...]
    verdict: Verdict
    served: Served | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A pair with its captured text, ready to be scored any number of times.

    ``reserve`` are further requests, for what the text of ``requests`` does not decide.
    """

    pair: ModelPair
    draft: ProbeDraft
    captured: Capture
    bounds: Bounds
    requests: tuple[Request, ...] = ()
    reserve: Reserve = field(default_factory=Reserve)


def load(
    subject: Subject,
    requests: tuple[Request, ...],
    *,
    reserve: Reserve = Reserve(),  # noqa: B008  # frozen
    captured: Capture | None = None,
    share_embedding: bool = False,
) -> Loaded:
    """Load the pair and capture every layer on the target's own greedy text.

    Args:
        subject: the pair's files.
        requests: prompts.
        reserve: more prompts, for candidates that these do not decide on.
        captured: every stream of the same target's text, when it was captured before.
        share_embedding: the engine takes the target's embedding even if the draft has its own.

    Raises:
        CheckpointError: the strict reader refuses the pair.
        WorkloadError: there are no requests.
        ConfigError: the draft is of a kind that the probe does not read.
    """
    target, folder = subject.target.path, subject.draft.path
    flags = {"capture_ids": subject.given, "capture_default": subject.as_default}
    config = replace(CONFIG, force_share_embed=share_embedding, d2t=subject.d2t)
    pair = ModelPair.load(target, folder, config, **flags)  # type: ignore[arg-type]  # two kinds
    draft = ProbeDraft.load(pair, folder, d2t=subject.d2t, **flags)
    begun = time.perf_counter()
    if captured is None:
        texts = greedy_texts(pair, requests, past=STEPS + 1)
        captured = capture(pair, texts, vocab_ids=draft.target_ids(), taps=tuple(Tap))
    taps = tuple(dict.fromkeys(tap for tap, _ in captured.features))
    bounds = Bounds(
        layers=pair.target_spec.n_layers,
        taps=taps,
        target_theta=pair.target_spec.rope.theta,
        target_scaling=pair.target_spec.rope.scaling,
        own_embedding=draft.has_own_embedding,
        mapped=draft.spec.draft_vocab < draft.spec.vocab,
    )
    each = (time.perf_counter() - begun) / len(captured.samples)
    return Loaded(
        pair=pair,
        draft=draft,
        captured=captured,
        bounds=bounds,
        requests=requests,
        reserve=replace(reserve, seconds=each),
    )


def probe_pair(
    subject: Subject,
    loaded: Loaded,
    *,
    proposed: tuple[int, ...] | None = None,
    serve: bool = True,
    templates: bool = True,
    budget: int = BUDGET,
    verdict: Verdict | None = None,
    change: Callable[[Engine], None] | None = None,
) -> Probed:
    """Score claim against candidates, then hold the engine's own steps against the claim.

    Args:
        subject: the pair's files.
        loaded: the same pair with its text.
        proposed: physical layers that somebody suggests instead, scored beside the claim.
        serve: whether to run the engine, too.
        templates: whether to form the prompts in other ways, too.
        budget: most choices of layers to score.
        verdict: of the same pair and text, when it was probed before.
        change: called on the engine that serves, once it is configured.
    """
    scored = _score(subject, loaded, verdict, templates=templates, budget=budget)
    verdict = scored.verdict
    found: list[Finding] = []
    confirmed: list[str] = list(scored.told)
    found += _judged(subject, loaded, verdict)
    if not found:
        confirmed.append(_confirmed(verdict))
    found += _of_text(subject, loaded, scored)
    if proposed is not None:
        found.append(_proposal(loaded, proposed))
    served = None
    if serve:
        try:
            served = _serve(loaded, change)
        except RequestError as error:  # what was probed stays known
            confirmed.append(f"The engine was not run on these texts: {error}")
    if served is not None:
        found += engine_findings(served, loaded.draft.claimed)
    if served is not None and served.agrees:
        confirmed.append(
            f"The engine makes the steps that the files imply ({100 * served.agreement:.1f} % of "
            f"{served.steps} steps; accept length {served.accept_length:.2f} at num_steps {STEPS})."
        )
    return Probed(findings=tuple(found), confirmed=tuple(confirmed), verdict=verdict, served=served)


def _serve(loaded: Loaded, change: Callable[[Engine], None] | None) -> Served:
    """The engine's own steps on the same texts, one request at a time.

    Raises:
        RequestError: a text goes beyond the draft's positions.
    """
    longest = max(len(sample.tokens) for sample in loaded.captured.samples) + STEPS + 1
    config = replace(CONFIG, max_batch_size=1, max_len=longest, prefill_chunk=PREFILL_CHUNK)
    engine = Engine(loaded.pair, config)
    engine.configure(SpecConfig.chain(STEPS), 1)
    if change is not None:
        change(engine)
    return compare_served(engine, loaded.draft, loaded.captured, loaded.bounds)


def _score(
    subject: Subject, loaded: Loaded, verdict: Verdict | None, *, templates: bool, budget: int
) -> Scored:
    """Every candidate on the first text; then what is contested on more of it."""
    draft, captured = loaded.draft, loaded.captured
    verdict = verdict or probe(draft, captured, loaded.bounds, budget=budget)
    folder = subject.draft.path
    variants = (
        probe_templates(loaded.pair, draft, folder, loaded.requests, captured) if templates else ()
    )
    text = FurtherText(loaded.pair, draft, folder, captured, loaded.bounds)
    scored = Scored(verdict=verdict, variants=variants)
    return settle(text, loaded.reserve, len(captured.samples), scored)


def _of_text(subject: Subject, loaded: Loaded, scored: Scored) -> list[Finding]:
    """What the text tells: tokens out of vocabulary, doubled start tokens, other templates."""
    found = [
        coverage_finding(loaded.draft, loaded.captured, scored.verdict.claimed.first),
        bos_finding(loaded.captured, subject.target.integer("bos_token_id")),
        template_finding(scored.variants),
    ]
    return [finding for finding in found if finding is not None]


def _judged(subject: Subject, loaded: Loaded, verdict: Verdict) -> list[Finding]:
    """Wires to repair, and what no wiring explains; a repair that leaves the draft as good as
    nothing is none, and only a warning."""
    found: list[Finding] = []
    if verdict.winner is not None:
        ids = next((w.ids for w in written_ids(subject.draft.whole)), ())
        found += findings_of(verdict, layers=loaded.bounds.layers, arch=subject.arch, ids=ids)
    odd = unexplained(loaded.draft, loaded.captured, verdict)
    if odd is not None and odd.code == NONE:
        found = [replace(finding, severity=Severity.WARNING) for finding in found]
    return found if odd is None else [*found, odd]


def _confirmed(verdict: Verdict) -> str:
    claim, count = verdict.claimed, len(verdict.ranked)
    few = verdict.requests < LEAST_REQUESTS
    start = f"None of {count} other wirings beats the claim"
    start = "No fault could be declared" if few else start
    return (
        f"{start}: steps 1 and 2 are right in {100 * claim.first:.1f} and "
        f"{100 * claim.second:.1f} %. {verdict.unseen}"
    )


def _proposal(loaded: Loaded, proposed: tuple[int, ...]) -> Finding:
    """A suggested triple of layers against the claim, on the same positions."""
    claimed = loaded.draft.claimed
    inside = all(0 <= k <= loaded.bounds.layers for k in proposed)
    if not inside or len(proposed) != len(claimed.slots):
        raise ConfigError(
            f"--propose-ids {list(proposed)}.",
            expected=f"{len(claimed.slots)} physical indices in 0..{loaded.bounds.layers}.",
        )
    there = loaded.draft.score(loaded.captured, claimed, 2)
    here = loaded.draft.score(loaded.captured, replace(claimed, slots=proposed), 2)
    gain, error = paired_gain(here.hit.mean(1), there.hit.mean(1), here.text)
    few = len(loaded.captured.samples) < LEAST_REQUESTS
    verdict = "not told apart from the claim"
    if not few and abs(gain) > FAULT_Z * error:
        verdict = "confirmed" if gain > 0 else "refuted"
    return Finding(
        code="wiring.proposal",
        severity=Severity.NOTE,
        title=f"Proposed layers {list(proposed)} are {verdict}: step 1 right in "
        f"{100 * here.hit[:, 0].mean():.1f} %, with {list(claimed.slots)} "
        f"{100 * there.hit[:, 0].mean():.1f} %",
        evidence=(
            Fact(text=f"{100 * gain:+.1f} ± {100 * error:.1f} points", where="wiring probe"),
        ),
        remedy="Keep the claimed layers." if gain <= 0 else "See the wiring findings.",
        figures={"gain": gain, "error": error},
        score=0.9,
    )

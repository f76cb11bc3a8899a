"""The dynamic check: the draft is asked which wiring it prefers, and the engine which it runs.

Converts ``doctor.wiring`` and ``doctor.wiring_served`` into findings (engine-spec 10.3, 10.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from specbench.config import EngineConfig, SpecConfig
from specbench.doctor.checks_ids import written_ids
from specbench.doctor.checks_subject import Subject
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.doctor.wiring import FAULT_Z, LEAST_REQUESTS, Verdict, paired_gain
from specbench.doctor.wiring import probe_wiring as probe
from specbench.doctor.wiring_candidates import Bounds
from specbench.doctor.wiring_finding import finding_of
from specbench.doctor.wiring_served import Served, compare_served
from specbench.engine.engine import Engine
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.wiring import Tap
from specbench.errors import ConfigError
from specbench.request import Request

CONFIG = EngineConfig(dtype="float32", kernels="torch")
STEPS = 3
NAMED = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the dynamic check gave: findings, what was confirmed in words, and the raw verdicts."""

    findings: tuple[Finding, ...]
    confirmed: tuple[str, ...]
    verdict: Verdict
    served: Served | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A pair with its captured text, ready to be scored any number of times."""

    pair: ModelPair
    draft: ProbeDraft
    captured: Capture
    bounds: Bounds


def load(subject: Subject, requests: tuple[Request, ...]) -> Loaded:
    """Load the pair and capture every layer on the target's own greedy text.

    Raises:
        CheckpointError: the strict reader refuses the pair.
        WorkloadError: there are no requests.
        ConfigError: the draft is of a kind that the probe does not read.
    """
    target, folder = subject.target.path, subject.draft.path
    flags = {"capture_ids": subject.given, "capture_default": subject.as_default}
    pair = ModelPair.load(target, folder, CONFIG, **flags)  # type: ignore[arg-type]  # two kinds
    draft = ProbeDraft.load(pair, folder, **flags)  # type: ignore[arg-type]  # two kinds
    texts = greedy_texts(pair, requests, past=STEPS + 1)
    captured = capture(pair, texts, vocab_ids=draft.target_ids(), taps=tuple(Tap))
    taps = tuple(dict.fromkeys(tap for tap, _ in captured.features))
    bounds = Bounds(
        layers=pair.target_spec.n_layers,
        taps=taps,
        target_theta=pair.target_spec.rope.theta,
        own_embedding=draft.has_own_embedding,
        mapped=draft.spec.draft_vocab < draft.spec.vocab,
    )
    return Loaded(pair=pair, draft=draft, captured=captured, bounds=bounds)


def probe_pair(
    subject: Subject, loaded: Loaded, *, proposed: tuple[int, ...] | None = None, serve: bool = True
) -> Probed:
    """Score claim against candidates, then hold the engine's own steps against the claim.

    Args:
        subject: the pair's files.
        loaded: the same pair with its text.
        proposed: physical layers that somebody suggests instead, scored beside the claim.
        serve: whether to run the engine, too.
    """
    verdict = probe(loaded.draft, loaded.captured, loaded.bounds)
    found: list[Finding] = []
    confirmed: list[str] = []
    if verdict.winner is None:
        confirmed.append(_confirmed(verdict))
    else:
        found.append(_verdict(subject, loaded, verdict))
    if proposed is not None:
        found.append(_proposal(loaded, proposed))
    served = None
    if serve:
        engine = Engine(loaded.pair, replace(CONFIG, max_batch_size=1, max_len=_longest(loaded)))
        engine.configure(SpecConfig.chain(STEPS), 1)
        served = compare_served(engine, loaded.draft, loaded.captured, loaded.bounds)
        found += engine_findings(served)
        if served.agrees:
            confirmed.append(
                f"The engine makes the steps that the files imply ({100 * served.agreement:.1f} % "
                f"of {served.steps} steps; accept length {served.accept_length:.2f} at "
                f"num_steps {STEPS})."
            )
    return Probed(findings=tuple(found), confirmed=tuple(confirmed), verdict=verdict, served=served)


def _verdict(subject: Subject, loaded: Loaded, verdict: Verdict) -> Finding:
    ids = next((w.ids for w in written_ids(subject.draft.whole)), ())
    return finding_of(verdict, layers=loaded.bounds.layers, arch=subject.arch, ids=ids)


def _longest(loaded: Loaded) -> int:
    return max(len(sample.tokens) for sample in loaded.captured.samples) + STEPS + 1


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


def engine_findings(served: Served) -> Iterator[Finding]:
    """The engine's steps against those of the files: one finding when they differ."""
    if served.agrees:
        return
    best, share = served.alternatives[0] if served.alternatives else (None, 0.0)
    named = best is not None and share >= NAMED
    wire, told = (best.wire, best.name) if best is not None and named else ("other", "no known one")
    rows = tuple(
        Fact(
            text=f"{row.rows} rows, layers {list(row.layers)}, {100 * row.wrong_tokens:.1f} % "
            "with another token than the text's next",
            where=f"fed to the draft in {row.phase}",
        )
        for row in served.rows
    )
    yield Finding(
        code=f"engine.{wire}",
        severity=Severity.ERROR,
        title=f"The engine does not run what the files claim; its steps fit: {told}",
        evidence=(
            Fact(
                text=f"{100 * served.agreement:.1f} % of {served.steps} steps as claimed; first "
                f"steps {100 * served.first:.1f} %, later {100 * served.later:.1f} %",
                where="engine against probe",
            ),
            *rows,
        ),
        remedy="The draft's files are right; look at the engine's path for this wire.",
        figures={
            "agreement": served.agreement,
            "fit": share,
            "accept_length": served.accept_length,
            "expected_accept_length": served.expected_accept_length,
        },
        score=0.95 if named else 0.8,
    )

"""What does the engine really run? Its verify steps and draft rows against the offline probe.

The probe computes every step from the files alone, so an engine that runs the claimed wiring makes
exactly those steps. Where it does not, two things name the fault: the rows that its draft was fed
(tokens and features by physical layer), and the one wiring whose steps equal the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from specbench.doctor.wiring_candidates import Bounds, Change, single_changes
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.engine import Engine
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.wiring import Tap, Wiring
from specbench.errors import ConfigError
from specbench.request import Request, SamplingParams
from specbench.trace import StepTrace

AGREES = 0.995
SAME = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What the draft was fed in one phase, over all rows: ``layers`` is the physical index that
    each chunk equals (None: none of them), ``scale`` the ratio of its size to the claimed
    layer's, ``wrong_tokens`` the share of tokens that are not the text's next."""

    phase: str
    rows: int
    wrong_tokens: float
    layers: tuple[int | None, ...]
    scale: tuple[float, ...]
    borders: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The engine's steps against the probe's: shares of steps with the same accepted count.

    ``first`` and ``later`` part the steps of each request. ``alternatives`` are wirings by their
    agreement, best first; ``outputs_equal`` is the share of requests whose tokens are those of
    plain decoding.
    """

    steps: int
    agreement: float
    first: float
    later: float
    accept_length: float
    expected_accept_length: float
    alternatives: tuple[tuple[Change, float], ...]
    rows: tuple[Rows, ...]
    outputs_equal: float

    @property
    def agrees(self) -> bool:
        """The engine runs what the files claim."""
        return self.agreement >= AGREES


@dataclass(slots=True)
class _Seen:
    """What the draft was fed, by phase: text, first position, tokens, features."""

    text: int = 0
    calls: list[tuple[int, int, list[int], Tensor]] = field(default_factory=list)

    def __call__(self, lane: int, start: int, tokens: list[int], features: Tensor) -> None:
        self.calls.append((self.text, start, list(tokens), features.clone()))


def run_served(engine: Engine, captured: Capture) -> tuple[list[list[StepTrace]], _Seen, float]:
    """Run each text's prompt through the configured engine, one at a time.

    Returns:
        Steps by text, what the draft was fed, and the share of texts with the plain tokens.

    Raises:
        ConfigError: the engine does not draft.
    """
    if not isinstance(engine.drafter, Eagle3Drafter):
        raise ConfigError("the engine is not configured to draft.", todo="Configure a chain.")
    seen, steps, equal = _Seen(), [], 0
    engine.drafter.observer = seen
    with torch.inference_mode():
        for text, sample in enumerate(captured.samples):
            seen.text = text
            end = sample.prompt_len + sample.output_len
            request = Request(
                request_id=sample.request_id,
                prompt_ids=sample.tokens[: sample.prompt_len],
                sampling=SamplingParams(max_tokens=sample.output_len, ignore_eos=True),
            )
            traces, ids = _drive(engine, request)
            steps.append(traces)
            equal += ids == sample.tokens[sample.prompt_len : end]
    engine.drafter.observer = None
    return steps, seen, equal / len(captured.samples)


def _drive(engine: Engine, request: Request) -> tuple[list[StepTrace], tuple[int, ...]]:
    engine.submit(request)
    traces: list[StepTrace] = []
    ids: tuple[int, ...] = ()
    while not engine.idle:
        for emission in engine.step():
            if emission.trace is not None:
                traces.append(emission.trace)
            if emission.finish is not None:
                ids = emission.output_ids
    return traces, ids


def compare_served(engine: Engine, draft: ProbeDraft, captured: Capture, bounds: Bounds) -> Served:
    """Run the engine, and find the wiring that makes its steps.

    Args:
        engine: configured to a chain; its steps are compared.
        draft: the files, apart from the engine.
        captured: texts with at least K tokens past their cut.
        bounds: what can be varied.
    """
    depth = engine.spec.num_steps
    steps, seen, equal = run_served(engine, captured)
    rows, accepted, first = _positions(captured, steps)
    claimed = draft.claimed

    def agreement(wiring: Wiring) -> np.ndarray:
        alive = draft.score(captured, wiring, depth).alive
        same: np.ndarray = alive.sum(1)[rows] == accepted
        return same

    here = agreement(claimed)
    alternatives: list[tuple[Change, float]] = []
    if here.mean() < AGREES:
        scored = [(c, float(agreement(c.wiring).mean())) for c in served_changes(claimed, bounds)]
        alternatives = sorted(scored, key=lambda pair: -pair[1])
    expected = draft.score(captured, claimed, depth).alive.sum(1)[rows]
    return Served(
        steps=len(rows),
        agreement=float(here.mean()),
        first=float(here[first].mean()),
        later=float(here[~first].mean()) if (~first).any() else float("nan"),
        accept_length=1 + float(accepted.mean()),
        expected_accept_length=1 + float(expected.mean()),
        alternatives=tuple(alternatives),
        rows=tuple(_rows(captured, claimed, seen)),
        outputs_equal=equal,
    )


def served_changes(base: Wiring, bounds: Bounds) -> list[Change]:
    """Candidates for what an engine may run: those of the files, and what only code gets wrong."""
    n = bounds.layers
    default = (2, n // 2, n - 3)[: len(base.slots)]
    more: list[tuple[str, str, Wiring]] = [
        ("decode_shift", "drafted rows a position late", replace(base, decode_shift=1)),
        ("decode_shift", "drafted rows a position early", replace(base, decode_shift=-1)),
        ("use_fc", "fc skipped", replace(base, use_fc=False)),
        ("hidden_norm", "hidden_norm skipped", replace(base, hidden_norm=False)),
        ("token_first", "hidden half first", replace(base, token_first=False)),
        ("slots", "default layers", replace(base, slots=default)),
        ("verify_slots", "default layers at verify", replace(base, verify_slots=default)),
        (
            "slots",
            "one layer in every slot",
            replace(base, slots=(base.slots[-1],) * len(base.slots)),
        ),
    ]
    extra = [Change(wire=w, name=name, wiring=wiring) for w, name, wiring in more]
    changes = [*extra, *single_changes(base, bounds)]
    unique = {c.wiring: c for c in reversed(changes) if c.wiring != base}
    return list(reversed(unique.values()))


def _positions(
    captured: Capture, steps: Sequence[Sequence[StepTrace]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scored row, accepted count and whether it is a request's first, of every step."""
    rows, accepted, first, offset = [], [], [], 0
    for sample, traces in zip(captured.samples, steps, strict=True):
        for index, trace in enumerate(traces):
            rows.append(offset + trace.committed - sample.prompt_len - 1)
            accepted.append(trace.accepted)
            first.append(index == 0)
        offset += max(sample.output_len - 1, 0)
    return np.array(rows), np.array(accepted), np.array(first)


def _rows(captured: Capture, claimed: Wiring, seen: _Seen) -> list[Rows]:
    """The rows fed, by phase, against the texts and the captured streams."""
    found = []
    for phase in ("prefill", "verify"):
        places: list[int] = []
        tokens: list[int] = []
        features: list[Tensor] = []
        border: list[bool] = []
        for text, start, fed, values in seen.calls:
            sample = captured.samples[text]
            if (start < sample.prompt_len) != (phase == "prefill"):
                continue
            room = min(len(fed), len(sample.tokens) - 1 - start)
            first = captured.starts[text] + start
            places += range(first, first + room)
            tokens += fed[:room]
            features.append(values[:room])
            border += [False] * (room - 1) + [True]
        if places:
            found.append(_phase(captured, claimed, phase, places, tokens, features, border))
    return found


def _phase(
    captured: Capture,
    claimed: Wiring,
    phase: str,
    places: list[int],
    tokens: list[int],
    features: list[Tensor],
    border: list[bool],
) -> Rows:
    at = torch.tensor(places)
    wrong = captured.tokens[at + 1].cpu() != torch.tensor(tokens)
    edges = torch.tensor(border)
    chunks = torch.cat(features).chunk(len(claimed.slots), -1)
    layers, scales = [], []
    for own, chunk in zip(claimed.slots, chunks, strict=True):
        right = captured.features[Tap.RESIDUAL, own][at]
        scales.append(float(chunk.norm() / right.norm()))
        layers.append(_layer_of(captured, at, chunk, own))
    return Rows(
        phase=phase,
        rows=len(places),
        wrong_tokens=float(wrong.double().mean()),
        layers=tuple(layers),
        scale=tuple(scales),
        borders=float((wrong & edges).sum() / wrong.sum()) if wrong.any() else 0.0,
    )


def _layer_of(captured: Capture, at: Tensor, chunk: Tensor, own: int) -> int | None:
    """The index whose stream nearly all rows of ``chunk`` equal; ``own`` is tried first."""
    layers = sorted(
        {k for tap, k in captured.features if tap is Tap.RESIDUAL}, key=lambda k: k != own
    )
    for k in layers:
        stream = captured.features[Tap.RESIDUAL, k][at]
        off = (chunk - stream).norm(dim=-1) / stream.norm(dim=-1)
        if float((off < SAME).double().mean()) > AGREES:
            return k
    return None

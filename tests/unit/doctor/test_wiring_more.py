"""Further text is asked for what is contested, and for nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any, cast

import numpy as np
import pytest

from specbench import demo
from specbench.config import EngineConfig
from specbench.doctor.findings import FAULT_Z
from specbench.doctor.wiring import Candidate, Judge, Verdict, paired_gain
from specbench.doctor.wiring_candidates import Bounds, Change
from specbench.doctor.wiring_more import (
    LATER_Z,
    LEADS,
    MOST_LOOKS,
    FurtherText,
    Reserve,
    Scored,
    contested_forms,
    contested_wirings,
    settle,
)
from specbench.doctor.wiring_template import (
    Variant,
    hits_by_request,
    probe_templates,
    renderings,
    scored_texts,
)
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_text import greedy_texts
from specbench.engine.wiring import Wiring
from specbench.errors import RequestError
from specbench.request import Request, SamplingParams
from specbench.workload import load_workload

CLAIM = Wiring(slots=(0, 1, 2), theta=1e4)
REQUESTS = tuple(Request(request_id=str(i), prompt="") for i in range(100))


def candidate(
    gain: float, error: float, *, limit: float = FAULT_Z, theta: float = 2.0
) -> Candidate:
    wiring = replace(CLAIM, theta=theta)
    return Candidate(
        change=Change(wire="theta", name=f"theta {theta:g}", wiring=wiring),
        first=0.7 + gain,
        second=0.7 + gain,
        gain=gain,
        error=error,
        z=gain / error,
        limit=limit,
    )


def verdict(*ranked: Candidate, requests: int = 36, winner: Candidate | None = None) -> Verdict:
    return Verdict(
        claimed=replace(candidate(0.0, 1.0), change=Change(wire="", name="", wiring=CLAIM)),
        ranked=ranked,
        winner=winner,
        repairs=(winner,) if winner else (),
        requests=requests,
        positions=1000,
        longest=90,
        searched=1,
        unknown_share=0.0,
    )


def variant(z: float, error: float = 0.02, requests: int = 36) -> Variant:
    """A form that leads by ``z`` standard errors of about ``error``."""
    base = np.tile([6.0, 10.0], (requests, 1))
    spread = np.where(np.arange(requests) % 2, 1.0, -1.0) * 10 * error * (requests - 1) ** 0.5
    sums = base + np.stack([10 * z * error + spread, np.zeros(requests)], 1)
    return Variant(name="raw text", sums=sums, base=base)


@pytest.mark.parametrize(
    ("gain", "error", "contested"),
    [
        (0.017, 0.0066, True),  # rotation base 1,000,000 for 10,000 on the shipped pair
        (0.0, 0.01, True),  # not behind, and three standard errors are worth a look
        (0.001, 0.003, False),  # the nearest rival of the sound pair: 1 point at most
        (-0.04, 0.01, False),  # surely behind
        (0.04, 0.01, False),  # surely ahead: a fault, nothing is open
    ],
)
def test_what_could_gain_much_is_contested(gain: float, error: float, contested: bool) -> None:
    one, behind = candidate(gain, error), candidate(-0.2, 0.01, theta=3.0)
    assert contested_wirings(verdict(one, behind)) == ((one,) if contested else ())


def test_nothing_is_contested_beside_a_fault_or_on_few_requests() -> None:
    one, better = candidate(0.017, 0.0066), candidate(0.1, 0.01, theta=3.0)
    assert contested_wirings(verdict(better, one, winner=better)) == ()
    assert contested_wirings(verdict(one, requests=11)) == ()
    assert contested_forms([variant(2.3, requests=11)]) == ()


def test_a_form_of_the_prompts_is_contested_while_it_leads() -> None:
    assert variant(2.3).error == pytest.approx(0.02)
    assert [v.z > LEADS for v in contested_forms([variant(2.3), variant(1.5)])] == [True]
    assert contested_forms([variant(2.9, error=0.002)]) == ()  # 1.2 points at most
    assert contested_forms([variant(2.3), variant(3.1)]) == ()  # a fault is named


def test_a_third_helping_is_taken_only_in_time() -> None:
    soon = Reserve(requests=REQUESTS, seconds=1.0, until=time.perf_counter() + 10)
    assert soon.part(0, 36) == REQUESTS[:36]  # costs no more than the first text
    assert soon.part(36, 36) == ()
    assert soon.part(36, 5) == REQUESTS[36:41]
    later = replace(soon, until=time.perf_counter() + 1000)
    assert later.part(36, 36) == REQUESTS[36:72]
    assert later.part(72, 36) == REQUESTS[72:]
    assert Reserve().part(0, 36) == ()


class Text:
    """Looks that return what a table says, in place of a model's scores."""

    def __init__(self, *looks: tuple[Candidate, ...]) -> None:
        self._looks = list(looks)
        self.asked: list[tuple[int, tuple[str, ...]]] = []

    def look(
        self, part: Sequence[Request], scored: Scored, wires: Sequence[Candidate], _: Any
    ) -> Scored:
        self.asked.append((len(part), tuple(c.change.name for c in wires)))
        ranked = self._looks.pop(0)
        winner = next((c for c in ranked if c.better), None)
        return replace(scored, verdict=verdict(*ranked, winner=winner))


def settled(first: tuple[Candidate, ...], *looks: tuple[Candidate, ...]) -> tuple[Scored, Text]:
    text = Text(*looks)
    scored = Scored(verdict=verdict(*first), variants=())
    return settle(cast("FurtherText", text), Reserve(requests=REQUESTS), 36, scored), text


def test_a_rival_in_front_is_looked_at_again_and_declared() -> None:
    near, far = candidate(0.017, 0.0066), candidate(-0.002, 0.003, theta=3.0)
    sure = candidate(0.018, 0.004, limit=LATER_Z)
    scored, text = settled((near, far), (sure, far))
    assert text.asked == [(36, ("theta 2",))]  # what is not contested is not scored again
    assert scored.verdict.winner == sure
    assert scored.told == (
        "36 requests did not decide on theta 2 (+1.7 ± 0.7 points), so 36 more were asked: 72 in "
        "all.",
    )


def test_looking_ends_when_it_is_decided_or_the_looks_are_used_up() -> None:
    near, behind = candidate(0.017, 0.0066), candidate(0.002, 0.004, limit=LATER_Z)
    scored, text = settled((near,), (behind,))
    assert (len(text.asked), scored.verdict.winner) == (1, None)
    still = candidate(0.0155, 0.005, limit=LATER_Z)  # 3.1 standard errors: once enough, now not
    scored, text = settled((near,), (still,), (still,))
    assert [asked for asked, _ in text.asked] == [36, 36]
    assert len(text.asked) == MOST_LOOKS - 1
    assert scored.verdict.winner is None
    assert "More --requests or --max-tokens would settle it" in scored.verdict.unseen
    scored, text = settled((candidate(0.001, 0.003),))
    assert (text.asked, scored.told) == ([], ())


def test_requests_that_fail_leave_what_is_known() -> None:
    class Broken(Text):
        def look(self, *_: Any) -> Scored:
            raise RequestError("a prompt is too long.")

    scored = Scored(verdict=verdict(candidate(0.017, 0.0066)), variants=())
    after = settle(cast("FurtherText", Broken()), Reserve(requests=REQUESTS), 36, scored)
    assert after.verdict == scored.verdict
    assert after.told[1].startswith("They could not be scored: a prompt is too long.")


def test_looking_again_accuses_a_sound_claim_no_more_often() -> None:
    """A rival as good as the claim, 4,000 times: shares of false faults under the whole rule."""
    coins = np.random.default_rng(5)
    false = 0
    for _ in range(4000):
        rows = coins.normal(0, 0.06, 108)  # gain of each request: 1 point of error at 36
        for look in range(1, MOST_LOOKS + 1):
            n = 36 * look
            gain, error = paired_gain(rows[:n], np.zeros(n), np.arange(n))
            here = candidate(gain, error, limit=FAULT_Z if look == 1 else LATER_Z)
            if here.better:
                false += 1
            if not contested_wirings(verdict(here, winner=here if here.better else None)):
                break
    allowed = (1 - NormalDist().cdf(FAULT_Z)) + 2 * (1 - NormalDist().cdf(LATER_Z))
    assert 0 < false / 4000 < 2 * allowed  # Student's tails are a little heavier


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return ModelPair.load(demo.TARGET, demo.DRAFT, EngineConfig(dtype="float32", kernels="torch"))


def test_a_further_look_is_the_look_at_all_text(pair: ModelPair) -> None:
    """Streams and scores that were added are those of one capture of all requests."""
    draft = ProbeDraft.load(pair, demo.DRAFT)
    asked = load_workload("default").requests(10, SamplingParams(max_tokens=6))
    first, part = asked[:6], asked[6:]
    one, both = (captured(pair, draft, some) for some in (first, asked))
    claim = draft.claimed
    moved = replace(claim, slots=(1, 4, 7))
    changes = [Change(wire="slots", name="moved", wiring=moved)]
    judge = Judge(draft, one)
    rival = judge.candidate(changes[0], claim)
    forms = probe_templates(pair, draft, demo.DRAFT, first, one)
    scored = Scored(verdict=replace(verdict(rival), claimed=rival), variants=forms)
    bounds = Bounds(layers=8, taps=(), target_theta=1e4, own_embedding=False, mapped=True)
    text = FurtherText(pair, draft, demo.DRAFT, one, bounds)
    seen = text.look(part, scored, [rival], forms[:1])

    whole = Judge(draft, both).candidate(changes[0], claim)
    (again,) = seen.verdict.ranked
    assert (again.gain, again.error) == pytest.approx((whole.gain, whole.error))
    assert again.gain != rival.gain
    assert again.limit == LATER_Z
    assert seen.verdict.look is not None
    assert seen.verdict.look.requests == len(asked)
    assert f"({seen.verdict.look.positions} of 10 for moved)" in seen.verdict.unseen
    assert len(seen.verdict.claimed.change.wiring.slots) == 3
    longer, same = seen.variants
    assert same is forms[1]
    assert longer.base.tolist() == hits_by_request(draft, both).tolist()
    (_, formed), *_ = renderings(pair, demo.DRAFT, asked)
    assert longer.sums.tolist() == scored_texts(pair, draft, formed).tolist()


def captured(pair: ModelPair, draft: ProbeDraft, asked: Sequence[Request]) -> Capture:
    texts = greedy_texts(pair, asked, past=2)
    return capture(pair, texts, vocab_ids=draft.target_ids())

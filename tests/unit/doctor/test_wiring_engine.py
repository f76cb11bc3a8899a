"""An engine's fault is named by its map, its steps, its rows, its positions, or left unnamed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specbench.doctor.wiring_alternatives import alternatives_for
from specbench.doctor.wiring_candidates import Bounds, Change
from specbench.doctor.wiring_engine import engine_findings, name_engine
from specbench.doctor.wiring_rows import Audit, Rows
from specbench.doctor.wiring_served import Served
from specbench.doctor.wiring_streams import Stream
from specbench.engine.wiring import Tap, Wiring

CLAIM = Wiring(slots=(2, 4, 7), theta=1e4)
BOUNDS = Bounds(layers=8, taps=tuple(Tap), target_theta=1e4, own_embedding=False, mapped=True)
STEPS = 80


def layers(*ks: int) -> tuple[Stream, ...]:
    return tuple(Stream(kind="layer", layer=k, scale=1.0) for k in ks)


def rows(phase: str, *, streams: tuple[Stream, ...] = layers(2, 4, 7), **more: float) -> Rows:
    plain = {"wrong_tokens": 0.0, "borders": 0.0} | more
    return Rows(phase=phase, rows=100, streams=streams, **plain)


def served(
    prefill: Rows, verify: Rows, *, begin: int | None = 0, odd: slice = slice(0, 40), **more: object
) -> Served:
    """80 steps of one text at positions 0 .. 79, some with another accepted count."""
    expected = np.ones(STEPS, dtype=np.int64)
    accepted = expected.copy()
    accepted[odd] = 0
    agreement = float((accepted == expected).mean())
    made = Served(
        steps=STEPS, agreement=agreement, first=1.0, later=1.0, accepted=accepted,
        expected=expected, texts=np.zeros(STEPS, dtype=np.int64), at=np.arange(STEPS),
        alternatives=(), audit=Audit(rows=(prefill, verify), wrong_from=(begin,)),
        outputs_equal=1.0,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]  # named fields


HIGH = layers(3, 5, 8)
RIGHT = (rows("prefill"), rows("verify"))
HALF = tuple(Stream(kind="scaled", scale=0.5, value=0.5) for _ in range(3))
GONE = (*layers(2), *(Stream(kind="empty", scale=0.0) for _ in range(2)))
OFF = tuple(Stream(kind="unknown", scale=1.0) for _ in range(3))
FIT = Change(wire="theta", name="theta 1e+06", wiring=replace(CLAIM, theta=1e6))


@pytest.mark.parametrize(
    ("seen", "wire", "words"),
    [
        (served(*RIGHT, map_read="zero_map"), "zero_map", "all zeros"),
        (served(*RIGHT, begin=None, alternatives=((FIT, 1.0),)), "theta", "theta 1e+06"),
        (served(RIGHT[0], rows("verify", missing=0.6)), "extend", "60 % of the rows"),
        (served(rows("prefill", wrong_tokens=0.1, borders=1.0), RIGHT[1]), "border", "chunk"),
        (served(RIGHT[0], rows("verify", wrong_guess=0.5)), "guess_row", "50 % of the verifies"),
        (served(RIGHT[0], rows("verify", wrong_tokens=0.9)), "pairing", "90 % of the rows"),
        (served(RIGHT[0], rows("verify", streams=OFF, stale=0.9)), "features_stale", "90 %"),
        (
            served(rows("prefill", streams=HIGH), rows("verify", streams=HIGH)),
            "slots", "layer 3 for layer 2, layer 5 for layer 4",
        ),
        (served(RIGHT[0], rows("verify", streams=layers(2, 4, 5))), "verify_slots", "verify only"),
        (
            served(rows("prefill", streams=HALF), rows("verify", streams=HALF)),
            "features_scaled", "0.5 of layer 2",
        ),
        (
            served(rows("prefill", streams=GONE), rows("verify", streams=GONE)),
            "features_lost", "nothing (zeros) for layer 4",
        ),
        (served(*RIGHT, begin=None, odd=slice(50, 80)), "positions", "before position 50"),
        (served(*RIGHT, begin=None), "unnamed", "computes otherwise"),
    ],
)  # fmt: skip
def test_the_wire_is_named(seen: Served, wire: str, words: str) -> None:
    (finding,) = engine_findings(seen, CLAIM)
    assert finding.code == f"engine.{wire}"
    assert words in finding.title


def test_a_sound_engine_has_no_finding_and_wrong_rows_alone_are_one() -> None:
    same = served(*RIGHT, begin=None, odd=slice(0, 0))
    assert list(engine_findings(same, CLAIM)) == []
    faint = served(rows("prefill", wrong_tokens=0.1, borders=1.0), RIGHT[1], odd=slice(0, 0))
    assert [f.code for f in engine_findings(faint, CLAIM)] == ["engine.border"]


def test_steps_before_the_first_wrong_row_are_not_explained_by_it() -> None:
    late = served(RIGHT[0], rows("verify", missing=0.6), begin=19)
    assert name_engine(late, CLAIM).explained == pytest.approx(0.5)


def test_rows_say_which_wiring_is_worth_scoring() -> None:
    def wirings(prefill: Rows, verify: Rows, begin: int | None = 0) -> list[Wiring]:
        found = Audit(rows=(prefill, verify), wrong_from=(begin,))
        return [change.wiring for change in alternatives_for(found, CLAIM, BOUNDS)]

    moved = tuple(Stream(kind="moved", scale=1.0, value=-1.0) for _ in range(3))
    other, late = rows("prefill", streams=layers(3, 5, 8)), rows("verify", streams=layers(2, 4, 5))
    assert wirings(other, other) == [replace(CLAIM, slots=(3, 5, 8))]
    assert wirings(RIGHT[0], late) == [replace(CLAIM, verify_slots=(2, 4, 5))]
    assert wirings(*(rows("prefill", streams=moved),) * 2) == [replace(CLAIM, pairing=1)]
    assert wirings(*(rows("prefill", wrong_tokens=1.0),) * 2) == [replace(CLAIM, pairing=-1)]
    assert wirings(*(rows("prefill", streams=HALF),) * 2) == []
    blind = wirings(*RIGHT, begin=None)
    assert replace(CLAIM, decode_shift=1) in blind
    assert all(wiring.slots == CLAIM.slots for wiring in blind)

"""Wirings that an engine may run in place of the files', from what its draft was fed.

Rows that are wrong say which wiring it is, so that one alone is scored. Rows that are right leave
only what happens behind them: norms, rotations, the map, the recurrence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from specbench.doctor.wiring_candidates import Bounds, Change, single_changes
from specbench.doctor.wiring_rows import Audit, Rows
from specbench.engine.wiring import Tap, Wiring

INPUTS = ("slots", "verify_slots", "tap", "pairing")
SHIFTED = 0.5
_TAPS = {"layer": Tap.RESIDUAL, "normed": Tap.NORMED, "mlp": Tap.MLP}


def served_changes(base: Wiring, bounds: Bounds) -> list[Change]:
    """Candidates for what an engine may run: those of the files, and what only code gets wrong."""
    n = bounds.layers
    default = (2, n // 2, n - 3)[: len(base.slots)]
    more: list[tuple[str, str, Wiring]] = [
        ("decode_shift", "drafted rows a position late", replace(base, decode_shift=1)),
        ("decode_shift", "drafted rows a position early", replace(base, decode_shift=-1)),
        ("use_fc", "fc skipped", replace(base, use_fc=False)),
        ("hidden_norm", "hidden_norm skipped", replace(base, hidden_norm=False)),
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


def alternatives_for(audit: Audit, base: Wiring, bounds: Bounds) -> list[Change]:
    """What is worth scoring, given the rows that were fed."""
    known = served_changes(base, bounds)
    if all(begin is None for begin in audit.wrong_from):
        return [change for change in known if change.wire not in INPUTS]
    by = {row.phase: row for row in audit.rows}
    prefill = by.get("prefill", by.get("verify"))
    if prefill is None:
        return []
    wiring = _of_rows(prefill, by.get("verify", prefill), base, bounds)
    if wiring is None or wiring == base:
        return []
    return [_named(wiring, base, known)]


def _of_rows(prefill: Rows, verify: Rows, base: Wiring, bounds: Bounds) -> Wiring | None:
    """The one wiring whose rows these are; None where no wiring has such rows."""
    last, moves = prefill.streams[-1], {(s.kind, s.value) for s in prefill.streams}
    if last.kind == "normed" and last.layer == bounds.layers and base.slots[-1] != bounds.layers:
        return replace(base, use_fc=False)
    if moves == {("moved", -1.0)}:
        return replace(base, pairing=1)
    if min(prefill.wrong_tokens, verify.wrong_tokens) > SHIFTED:
        return replace(base, pairing=-1)
    taps = {s.kind for row in (prefill, verify) for s in row.streams}
    if len(taps) != 1 or not taps <= _TAPS.keys() or prefill.wrong_tokens or verify.missing:
        return None
    slots, late = _slots(prefill), _slots(verify)
    tap = _TAPS[taps.pop()]
    return replace(base, slots=slots, tap=tap, verify_slots=None if late == slots else late)


def _slots(row: Rows) -> tuple[int, ...]:
    return tuple(-1 if s.layer is None else s.layer for s in row.streams)


def _named(wiring: Wiring, base: Wiring, known: Iterable[Change]) -> Change:
    """With the name that the list of candidates has for it, else its layers."""
    for change in known:
        if change.wiring == wiring:
            return change
    wire, late = next(iter(wiring.changes(base))), wiring.verify_slots
    name = f"layers {list(wiring.slots)}" if late is None else f"layers {list(late)} at verify"
    return Change(wire=wire, name=name, wiring=wiring)

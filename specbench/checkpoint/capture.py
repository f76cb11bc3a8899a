"""Which target layers a draft is given: what its files say, or what a flag says instead."""

from __future__ import annotations

from collections.abc import Mapping

from specbench.checkpoint.formats import Captured, DraftFormat
from specbench.checkpoint.id_rules import usual
from specbench.checkpoint.keys import Keys, shown
from specbench.errors import CheckpointError

MARKER = "specbench"


def choose_capture(
    keys: Keys, kind: DraftFormat, layers: int, given: tuple[int, ...] | None, use_default: bool
) -> Captured:
    """Physical layers, ascending, and where they come from (engine-spec 3.3: no silent default).

    Args:
        keys: the draft's config.
        kind: its format.
        layers: the target's number of layers.
        given: ``--capture-ids``.
        use_default: ``--capture-default``.

    Raises:
        CheckpointError: nobody names the layers, two do, or they lie outside the target.
    """
    named = _named(keys, kind, layers, forgiving=given is not None)
    if named.last_hidden and (given is not None or use_default):
        raise CheckpointError(
            f"{named.source}; --capture-ids and --capture-default do not apply.", todo="Drop them."
        )
    if named.last_hidden:
        return Captured(physical=(layers,), source=named.source, last_hidden=True)
    if named.named and use_default:
        raise CheckpointError(
            f"{keys.source} names its layers (physical {list(named.physical)}); --capture-default "
            "is for drafts that name none.",
            todo="Drop --capture-default.",
        )
    chosen = _chosen(keys, named, layers, given, use_default)
    outside = [k for k in chosen.physical if not 0 <= k <= layers]
    if outside or len(set(chosen.physical)) != len(chosen.physical):
        raise CheckpointError(
            f"capture layers {shown(list(chosen.physical))} ({chosen.source}) on a target of "
            f"{layers} layers.",
            expected=f"Distinct physical indices in 0..{layers}.",
        )
    return chosen


def _named(keys: Keys, kind: DraftFormat, layers: int, *, forgiving: bool) -> Captured:
    """What the files say; ``forgiving`` when a flag decides and they may be unreadable."""
    try:
        said = kind.capture(keys, layers)
    except CheckpointError as error:
        if not forgiving:
            marked = _marked(keys)
            if marked is None:
                raise
            return marked
        keys.note("capture_unread", f"the draft's own layer ids are set aside: {error.what}")
        return Captured()
    return _marked(keys) or said


def _marked(keys: Keys) -> Captured | None:
    """Physical layers that ``specbench convert`` left beside ids meant for one engine."""
    table = keys.raw(MARKER)
    if table is None:
        return None
    where = f"{keys.source}: {MARKER}"
    if not isinstance(table, Mapping):
        raise CheckpointError(f"{where}={shown(table)}.", expected="A table.")
    inner = Keys(table, where)
    physical, engine = inner.raw("capture_physical"), inner.raw("ids_for")
    inner.done()
    if not isinstance(physical, list) or not all(type(k) is int for k in physical) or not physical:
        raise CheckpointError(
            f"{where}: capture_physical={shown(physical)}.", expected="A list of integers."
        )
    return Captured(
        physical=tuple(sorted(physical)),
        source=f"{where}: capture_physical; the ids beside it are written for {shown(engine)}",
    )


def _chosen(
    keys: Keys, named: Captured, layers: int, given: tuple[int, ...] | None, use_default: bool
) -> Captured:
    if given is not None:
        physical = tuple(sorted(given))
        said = "the draft names none"
        if named.named:
            said = f"instead of {list(named.physical)} ({named.source})"
        keys.note("capture_ids", f"physical layers {list(physical)} from --capture-ids; {said}")
        return Captured(physical=physical, source="--capture-ids")
    if named.named:
        return named
    if use_default:
        physical = usual(layers)
        keys.note("capture_default", f"physical layers {list(physical)} from --capture-default")
        return Captured(physical=physical, source="--capture-default: 2, n//2, n-3")
    raise CheckpointError(
        f"{keys.source} does not say which target layers the draft was trained on.",
        expected="Layer ids in eagle_config, or a flag.",
        todo="Give --capture-ids (physical indices), or --capture-default for 2, n//2, n-3.",
    )

"""Layer ids: where they stand, who reads them there, and what they mean to each engine."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specbench.checkpoint.conventions import find, rules_for, to_physical, to_written, versions
from specbench.checkpoint.id_rules import NESTED, RULES, TOP, IdRule, usual
from specbench.doctor.checks_subject import Subject
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.errors import CheckpointError, ConfigError

_TRAINER = {NESTED: "specforge", TOP: "vllm==0.32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Ids as they stand under one key."""

    key: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The physical layers that a draft was trained on, as its files or a flag say."""

    physical: tuple[int, ...]
    source: str


def written_ids(table: Mapping[str, Any], prefix: str = "") -> list[Written]:
    """Every list of whole numbers whose key speaks of layer ids, wherever it is nested."""
    found = []
    for key, value in table.items():
        where = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found += written_ids(value, f"{where}.")
        elif (
            ("layer_ids" in key or key == "aux_hidden_state_layers")
            and isinstance(value, list)
            and value
            and all(type(i) is int for i in value)
        ):
            found.append(Written(key=where, ids=tuple(value)))
    return found


def claim_of(subject: Subject) -> Claim | None:
    """Layers trained on: a flag first, then the draft's own marker, then its ids."""
    n = subject.layers
    if subject.given is not None:
        return Claim(physical=tuple(sorted(subject.given)), source="--capture-ids")
    if n is None:
        return None
    if subject.as_default:
        return Claim(physical=usual(n), source="--capture-default")
    marker = subject.draft.whole.get("specbench")
    kept = marker.get("capture_physical") if isinstance(marker, Mapping) else None
    if isinstance(kept, list) and kept and all(type(k) is int for k in kept):
        return Claim(
            physical=tuple(sorted(kept)),
            source=subject.draft.at("specbench.capture_physical"),
        )
    for written in written_ids(subject.draft.whole):
        rule = _writer(subject, written)
        if rule is not None:
            try:
                physical = to_physical(written.ids, rule, n)
            except CheckpointError:
                continue
            where = subject.draft.at(written.key)
            return Claim(physical=physical, source=f"{where} {list(written.ids)} ({rule.code})")
    return None


def _writer(subject: Subject, written: Written) -> IdRule | None:
    """Who wrote ids at this place; None where nobody would."""
    if subject.is_speculators and written.key == TOP:
        version = subject.draft.whole.get("speculators_version")
        try:
            return find(f"speculators=={version}" if isinstance(version, str) else "speculators")
        except ConfigError:
            return None
    return find(_TRAINER[written.key]) if written.key in _TRAINER else None


def check_ids(subject: Subject) -> Iterator[Finding]:
    """What the ids say, before asking who reads them."""
    found = written_ids(subject.draft.whole)
    read = [w for w in found if w.key in (TOP, NESTED)]
    yield from _absent(subject, found, read)
    yield from _two_sets(subject, read)
    for written in read:
        yield from _each(subject, written)
    claim, below = claim_of(subject), [w for w in read if min(w.ids) < 0]
    if below or (claim is not None and 0 in claim.physical):
        source = claim.source if claim else subject.draft.at(below[0].key)
        named = claim.physical if claim else below[0].ids
        yield Finding(
            code="ids.embedding",
            severity=Severity.WARNING if claim else Severity.ERROR,
            title="One of the layers is physical 0, the embedding's output",
            evidence=(Fact(text=str(list(named)), where=source),),
            remedy="Compare with the ids of the training run; run without --static to score both.",
            score=0.8,
        )


def _absent(subject: Subject, found: list[Written], read: list[Written]) -> Iterator[Finding]:
    uses = subject.draft.whole.get("eagle_config")
    if isinstance(uses, Mapping) and uses.get("use_aux_hidden_state") is False:
        return
    held = {key: _held(subject.draft.whole, key) for key in (NESTED, TOP)}
    facts = [Fact(text=text, where=subject.draft.at(key)) for key, text in held.items()]
    odd = [w for w in found if w not in read]
    if odd and not read:
        yield Finding(
            code="ids.misplaced",
            severity=Severity.ERROR,
            title=f"Layer ids stand under {odd[0].key}, where no engine reads them",
            evidence=tuple(Fact(text=str(list(w.ids)), where=subject.draft.at(w.key)) for w in odd),
            remedy=f"Move them to {NESTED} (SGLang, X + 1) or {TOP} (vLLM, X).",
            score=0.95,
        )
    elif not read and subject.given is None and not subject.as_default:
        n = subject.layers
        default = f" {list(usual(n))}" if n else ""
        yield Finding(
            code="ids.absent",
            severity=Severity.ERROR,
            title=f"The draft names no layers; engines take their default{default} in silence",
            evidence=tuple(facts),
            remedy="--capture-ids K,K,K with the layers it was trained on, or --capture-default.",
            score=0.95,
        )


def _held(table: Any, key: str) -> str:
    """What stands under a dotted key where no list of ids does."""
    for name in key.split("."):
        table = table.get(name) if isinstance(table, Mapping) else None
    if table in (None, []):
        return "no list of ids"
    return f"{reprlib.repr(table)}, which is no list of whole numbers"


def _two_sets(subject: Subject, read: list[Written]) -> Iterator[Finding]:
    n = subject.layers
    meant: list[tuple[Written, tuple[int, ...]]] = []
    for written in read:
        rule = _writer(subject, written)
        if rule is not None and n is not None:
            try:
                meant.append((written, to_physical(written.ids, rule, n)))
            except CheckpointError:
                continue
    if len({physical for _, physical in meant}) > 1:
        yield Finding(
            code="ids.two_sets",
            severity=Severity.ERROR,
            title="Two places name different layers",
            evidence=tuple(
                Fact(text=f"{list(w.ids)}: physical {list(k)}", where=subject.draft.at(w.key))
                for w, k in meant
            ),
            remedy="Keep the right one, or write both for the same layers (specbench convert).",
            score=0.9,
        )


def _each(subject: Subject, written: Written) -> Iterator[Finding]:
    where, ids, n = subject.draft.at(written.key), written.ids, subject.layers
    if len(set(ids)) != len(ids):
        yield Finding(
            code="ids.repeated",
            severity=Severity.ERROR,
            title=f"Layer ids {list(ids)} name a layer twice",
            evidence=(Fact(text=str(list(ids)), where=where),),
            remedy="Name each layer once.",
            score=0.9,
        )
    if list(ids) != sorted(ids):
        yield Finding(
            code="ids.order",
            severity=Severity.WARNING,
            title=f"Layer ids {list(ids)} are not ascending; engines join them by depth",
            evidence=(Fact(text=str(list(ids)), where=where),),
            remedy=f"Write {sorted(ids)} if it was trained so; else train again by depth.",
            score=0.6,
        )
    if n is not None and any(not -1 <= x <= n for x in ids):
        yield Finding(
            code="ids.range",
            severity=Severity.ERROR,
            title=f"Layer ids {list(ids)} lie outside the target's {n} layers",
            evidence=(
                Fact(text=str(list(ids)), where=where),
                Fact(text=f"{n} layers", where=subject.target.at("num_hidden_layers")),
            ),
            remedy="Take the ids of the training run; is this the draft's target?",
            score=0.95,
        )


def check_engines(subject: Subject) -> Iterator[Finding]:
    """Engines that would capture other layers than the draft was trained on."""
    claim, n = claim_of(subject), subject.layers
    if claim is None or n is None or any(not 0 <= k <= n for k in claim.physical):
        return
    named = {w.key: w.ids for w in written_ids(subject.draft.whole)}
    facts, writes, right = [], [], []
    for rule in _serving(subject):
        taken, why = _taken(rule, named, n)
        engine = f"{rule.code} {versions(rule)}"
        if taken == claim.physical:
            right.append(engine)
            continue
        facts.append(Fact(text=f"{engine} would capture {_shown(taken)}: {why}", where=rule.source))
        try:
            ids = list(to_written(claim.physical, rule, n))
            writes.append(f"for {engine} write {rule.keys[0]} = {ids}")
        except CheckpointError:
            writes.append(f"{engine} cannot be told to capture them")
    if facts:
        yield Finding(
            code="ids.engines",
            severity=Severity.ERROR if subject.engine else Severity.NOTE,
            title=_misread(facts, claim.physical, certain=bool(subject.engine)),
            evidence=tuple(facts),
            remedy=(f"Right as it is for {_listed(right)}. " if right else "")
            + _sentence("; ".join(writes)),
            claims=f"physical {list(claim.physical)} ({claim.source})",
            score=0.9 if subject.engine else 0.4,
        )


def _serving(subject: Subject) -> list[IdRule]:
    if subject.engine:
        return [find(subject.engine, subject.arch)]
    codes = dict.fromkeys(r.code for r in RULES if r.serves and r.code != "vllm-dflash")
    return [rule for code in codes for rule in rules_for(code, subject.arch)]


def _taken(rule: IdRule, named: Mapping[str, tuple[int, ...]], n: int) -> tuple[Any, str]:
    key = next((key for key in rule.keys if key in named), None)
    if key is None:
        return rule.default(n), f"it reads {' and '.join(rule.keys)} only, so its default"
    try:
        return to_physical(
            named[key], rule, n
        ), f"{key} {list(named[key])} means {rule.shift.value}"
    except CheckpointError as error:
        return None, error.what.rstrip(".")


def _shown(taken: tuple[int, ...] | None) -> str:
    return "nothing" if taken is None else str(list(taken))


def _misread(facts: list[Fact], physical: tuple[int, ...], *, certain: bool) -> str:
    names = _listed([fact.text.partition(" would")[0] for fact in facts])
    told = f"{names} would feed the draft other layers than its own {list(physical)}"
    return told if certain else f"Only if you serve with one of them: {told}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."

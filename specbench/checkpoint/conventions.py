"""Layer ids between code bases: written ids to physical indices, and back (engine-spec 3.2).

>>> [kimi.meaning for kimi in table((2, 30, 58), layers=61, arch="KimiK25")][:2]
[(3, 31, 59), (2, 30, 58)]
>>> to_written((3, 31, 59), find("vllm==0.32"), layers=61)
(3, 31, 59)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from specbench.checkpoint.id_rules import RULES, IdRule, Shift, Version
from specbench.errors import CheckpointError, ConfigError

_SUFFIXES = re.compile(r"(for(causallm|conditionalgeneration)|lmheadmodel)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRow:
    """One line of the table: a code base, what the given ids mean there, and what to write.

    ``meaning`` are physical indices, None with the reason in ``refused``. ``default`` is what is
    captured when no ids are written. ``write`` are the ids that give the physical layers asked
    for, None with the reason in ``cannot``.
    """

    code: str
    versions: str
    rule: str
    keys: tuple[str, ...]
    meaning: tuple[int, ...] | None = None
    refused: str = ""
    default: tuple[int, ...] = ()
    write: tuple[int, ...] | None = None
    cannot: str = ""
    source: str = ""


def architecture(name: str) -> str:
    """A class or model type in one spelling: DeepseekV3ForCausalLM and deepseek_v3 are one.

    >>> architecture("KimiK25ForConditionalGeneration"), architecture("kimi_k25")
    ('kimik25', 'kimik25')
    """
    return _SUFFIXES.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))


def parse_ids(text: str, flag: str) -> tuple[int, ...]:
    """2,30,58 as integers; an empty text is no ids.

    Raises:
        ConfigError: anything else, named by ``flag``.
    """
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise ConfigError(f"{flag} {text!r}.", expected="Integers such as 2,30,58.") from error


def find(engine: str, arch: str = "") -> IdRule:
    """The rule of ``code==version`` for a target class; the version may be left out.

    Without a version a code base with a single rule for the class is taken as it is.

    Raises:
        ConfigError: unknown code base, or a version whose rule nobody has read.
    """
    code, named, text = engine.partition("==")
    code = code.strip().lower()
    rules = rules_for(code, arch)
    if not rules:
        known = ", ".join(dict.fromkeys(rule.code for rule in RULES))
        raise ConfigError(f"{engine!r} is not a known code base.", expected=f"One of {known}.")
    if named and not text.strip():
        raise ConfigError(f"{engine!r} names no version.", expected=f"{code}==VERSION, or {code}.")
    if not text:
        if len(rules) > 1:
            raise ConfigError(
                f"{engine!r}: what its layer ids mean depends on the version.",
                expected=f"One of {'; '.join(versions(rule) for rule in rules)}.",
                todo=f"Name it: {code}==VERSION.",
            )
        return rules[0]
    version = parse_version(text)
    fitting = [rule for rule in rules if holds_for(rule, version)]
    if not fitting:
        raise ConfigError(
            f"{engine!r}: the meaning of layer ids was not read for that version.",
            expected=f"{code} {'; '.join(versions(rule) for rule in rules)}.",
            todo="Try the ids of both neighbours and compare accept lengths.",
        )
    return fitting[-1]


def rules_for(code: str, arch: str = "") -> list[IdRule]:
    """The rules of a code base that hold for a target class, oldest version first.

    A special class has the general rule only for versions before its own first one.
    """
    wanted = architecture(arch)
    general = [rule for rule in RULES if rule.code == code and not rule.classes]
    special = [rule for rule in RULES if rule.code == code and wanted in rule.classes]
    if not special:
        return general
    first = min(rule.since for rule in special)
    return [rule for rule in general if rule.since < first] + special


def holds_for(rule: IdRule, version: Version) -> bool:
    """Whether ``version`` lies in the span that was read; 0.16.3 counts as 0.16."""
    old = bool(rule.since) and version < rule.since
    new = bool(rule.until) and version[: len(rule.until)] > rule.until
    return not old and not new


def parse_version(text: str) -> Version:
    """0.5.23 or 0.5.23.post1 as numbers.

    Raises:
        ConfigError: it does not start with numbers and dots.
    """
    found = re.match(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})", text.strip())
    if not found:
        raise ConfigError(f"{text!r} is not a version.", expected="Such as 0.5.23.")
    return tuple(int(part) for part in found[1].split("."))


def versions(rule: IdRule) -> str:
    """The span of a rule in words.

    >>> versions(find("sglang==0.5.9", "DeepseekV3"))
    '0.5.8 to 0.5.12'
    """
    since, until = (".".join(map(str, bound)) for bound in (rule.since, rule.until))
    if since and until:
        return f"{since} to {until}"
    return f"from {since}" if since else f"up to {until}" if until else "all"


def to_physical(ids: Sequence[int], rule: IdRule, layers: int) -> tuple[int, ...]:
    """Physical indices that written ``ids`` give on a target of ``layers`` layers, ascending.

    Raises:
        CheckpointError: the code base reads no ids, or would not capture what they name.
    """
    if rule.shift is Shift.FIXED:
        raise CheckpointError(
            f"{rule.code} reads no layer ids; it captures {rule.default(layers)}."
        )
    if not ids:
        raise CheckpointError("no layer ids are written.", expected="At least one.")
    if len(set(ids)) != len(ids):
        raise CheckpointError(
            f"layer ids {list(ids)} repeat one; it is captured once, so fc's input is too narrow.",
            expected="Distinct ids.",
        )
    moved = _shifted(rule, ids, layers)
    physical = tuple(sorted(x + moved for x in ids))
    problem = _beyond(physical, rule, layers)
    if problem:
        raise CheckpointError(f"layer ids {list(ids)} mean physical {list(physical)}: {problem}")
    return physical


def _shifted(rule: IdRule, ids: Sequence[int], layers: int) -> int:
    """What is added to every written id."""
    if rule.shift is Shift.FIRST_IS_ONE:
        return int(ids[0] == 1)
    if rule.shift is Shift.LAST_IS_N:
        return int(max(ids) != layers)
    return int(rule.shift is Shift.OUTPUT)


def to_written(physical: Sequence[int], rule: IdRule, layers: int) -> tuple[int, ...]:
    """Ids to write so that the code base captures exactly ``physical``, in ascending order.

    Raises:
        CheckpointError: they cannot be expressed, with the reason.
    """
    problem = _beyond(physical, rule, layers) or _disorder(physical)
    if problem:
        raise _inexpressible(physical, rule, problem)
    if rule.shift is Shift.FIXED:
        if tuple(physical) == rule.default(layers):
            return ()
        raise _inexpressible(
            physical, rule, f"it reads no ids and captures {list(rule.default(layers))}"
        )
    for moved in (0, 1):
        ids = tuple(k - moved for k in physical)
        if min(ids) >= 0 and _shifted(rule, ids, layers) == moved:
            return ids
    raise _inexpressible(
        physical, rule, "ids that start with 1 are read as X + 1, so none give a first layer of 1"
    )


def _disorder(physical: Sequence[int]) -> str:
    if len(set(physical)) != len(physical):
        return "a layer appears twice, and it is captured once"
    if list(physical) != sorted(physical):
        return "features are joined in the order of the forward pass, not in the order written"
    return ""


def _beyond(physical: Sequence[int], rule: IdRule, layers: int) -> str:
    """Why some of ``physical`` cannot be captured there; empty when all can."""
    outside = [k for k in physical if not 0 <= k <= layers]
    if outside:
        return f"{outside} lie outside 0..{layers}, the target's layers"
    if min(physical, default=0) < rule.first:
        return "physical 0, the embedding, is not captured there"
    if rule.below_last and layers in physical:
        return f"physical {layers} is the output of the last layer, captured only before a layer"
    return ""


def _inexpressible(physical: Sequence[int], rule: IdRule, why: str) -> CheckpointError:
    return CheckpointError(
        f"physical layers {list(physical)} cannot be expressed for {rule.code} {versions(rule)}: "
        f"{why}.",
        expected=f"Layers that its rule reaches: {rule.shift.value}.",
    )


def table(
    ids: Sequence[int] = (),
    *,
    layers: int,
    arch: str = "",
    physical: Sequence[int] | None = None,
    codes: Iterable[str] = (),
) -> list[IdRow]:
    """Every code base's reading of ``ids``, and what to write there for ``physical``.

    Args:
        ids: as written in a config; empty for none.
        layers: n, the target's decoder layers.
        arch: target class or model type; it changes SGLang's rule.
        physical: layers that the draft was trained on, when known.
        codes: code bases to show; all when empty.

    Raises:
        ConfigError: fewer than one layer.
    """
    if layers < 1:
        raise ConfigError(f"layers={layers}.", expected="The target's number of decoder layers.")
    shown = tuple(codes) or tuple(dict.fromkeys(rule.code for rule in RULES))
    rows = []
    for code in shown:
        rules = rules_for(code, arch)
        for rule, later in zip_longest(rules, rules[1:]):
            row = _row(rule, tuple(ids), layers, physical)
            if later is not None and not rule.until:  # a special rule takes over
                since, end = (".".join(map(str, one.since)) for one in (rule, later))
                row = replace(row, versions=f"{since} to before {end}")
            rows.append(row)
    return rows


def _row(rule: IdRule, ids: tuple[int, ...], layers: int, physical: Sequence[int] | None) -> IdRow:
    meaning, refused, write, cannot = None, "", None, ""
    default = tuple(k for k in rule.default(layers) if k >= 0)
    if ids:
        try:
            meaning = to_physical(ids, rule, layers)
        except CheckpointError as error:
            refused = error.what
    elif default:
        meaning = default
    if physical is not None:
        try:
            write = to_written(physical, rule, layers)
        except CheckpointError as error:
            cannot = error.what.rpartition(f"{versions(rule)}: ")[2]
    return IdRow(
        code=rule.code,
        versions=versions(rule),
        rule=rule.shift.value,
        keys=rule.keys,
        meaning=meaning,
        refused=refused,
        default=default,
        write=write,
        cannot=cannot,
        source=rule.source,
    )

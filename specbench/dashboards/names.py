"""Which metrics and labels an expression of PromQL names. Reads names only; Prometheus parses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    | (?P<window>\[[^\]\[]*\])
    | (?P<variable>\$\w+|\$\{[^}]*\})
    | (?P<number>\d[\w.]*)
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<sign>[^\s])""",
    re.VERBOSE,
)
_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"})
_MAKES_LABEL = frozenset({"label_join", "label_replace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Metrics, each with the labels of its matchers; labels of by, on and the like; new labels."""

    metrics: tuple[tuple[str, tuple[str, ...]], ...]
    labels: tuple[str, ...]
    made: tuple[str, ...]


def names_in(expr: str) -> Names:
    """The names in ``expr``; Grafana's variables may stand in texts, windows and durations.

    >>> names_in('sum by (arm) (rate(steps_total{point="a"}[$window]))')
    Names(metrics=(('steps_total', ('point',)),), labels=('arm',), made=())
    """
    tokens = [(str(m.lastgroup), m.group()) for m in _TOKEN.finditer(expr)]
    metrics: list[tuple[str, tuple[str, ...]]] = []
    labels: list[str] = []
    made: list[str] = []
    at = 0
    while at < len(tokens):
        kind, word = tokens[at]
        after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind != "name" or word.lower() in _WORDS:
            at += 1
        elif word in _LISTS:
            inside, at = _until(tokens, at + 1, ")")
            labels += [text for of, text in inside if of == "name"]
        elif after == "(":
            if word in _MAKES_LABEL:
                made += list(_made(tokens[at:]))[:1]
            at += 1
        elif tokens[at + 1 : at + 2] and tokens[at + 1][1] in ("by", "without"):
            at += 1  # an aggregation such as sum by (...)
        elif after == "{":
            inside, at = _until(tokens, at + 1, "}")
            matched = tuple(text for of, text in inside if of == "name")
            metrics.append((word, matched))
        else:
            metrics.append((word, ()))
            at += 1
    return Names(metrics=tuple(metrics), labels=tuple(labels), made=tuple(made))


def _until(
    tokens: Sequence[tuple[str, str]], start: int, end: str
) -> tuple[Sequence[tuple[str, str]], int]:
    """The tokens from ``start`` up to the sign ``end``, and the place after it."""
    stop = start
    while stop < len(tokens) and tokens[stop][1] != end:
        stop += 1
    return tokens[start:stop], stop + 1


def _made(tokens: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The second argument of a function, where it is a text, at this depth of brackets."""
    depth = commas = 0
    for kind, word in tokens[1:]:
        depth += (word == "(") - (word == ")")
        commas += word == "," and depth == 1
        if kind == "text" and depth == 1 and commas == 1:
            yield word[1:-1]
        if depth == 0:
            return

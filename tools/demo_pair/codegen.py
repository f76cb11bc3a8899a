# ruff: noqa: E501 (sentences and templates stay on one line)
"""Code: requests for short Python functions, built from conditions, mappings and reductions."""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.demo_pair.example import Example, Maker, one, pick

CONDITIONS = (
    ("even", "{x} % 2 == 0"), ("odd", "{x} % 2 == 1"), ("positive", "{x} > 0"), ("negative", "{x} < 0"),
    ("greater than {n}", "{x} > {n}"), ("smaller than {n}", "{x} < {n}"), ("divisible by {n}", "{x} % {n} == 0"), ("not zero", "{x} != 0"),
)
MAPS = (
    ("squared", "{x} * {x}"), ("doubled", "{x} * 2"), ("multiplied by {n}", "{x} * {n}"), ("increased by {n}", "{x} + {n}"),
    ("decreased by {n}", "{x} - {n}"), ("as text", "str({x})"), ("negated", "-{x}"), ("cubed", "{x} ** 3"),
)
TEXT_TESTS = (
    ("start with '{c}'", "{x}.startswith('{c}')"), ("end with '{c}'", "{x}.endswith('{c}')"), ("contain '{c}'", "'{c}' in {x}"),
    ("are longer than {n} letters", "len({x}) > {n}"), ("are written in capitals", "{x}.isupper()"), ("consist of digits", "{x}.isdigit()"),
)
TEXT_MAPS = (
    ("in upper case", "{x}.upper()"), ("in lower case", "{x}.lower()"), ("reversed", "{x}[::-1]"), ("without spaces at the ends", "{x}.strip()"),
    ("as their lengths", "len({x})"), ("with a capital first letter", "{x}.capitalize()"),
)
ITEMS = ("numbers", "values", "scores", "prices", "readings", "weights", "totals", "levels")
TEXTS = ("words", "names", "lines", "titles", "labels", "cities")
FIELDS = ("price", "age", "size", "score", "weight", "year", "rank", "stock")
THINGS = ("Counter", "Account", "Queue", "Stack", "Timer", "Basket", "Shelf", "Meter")

Code = tuple[str, str]


def _vary(rng: random.Random, pair: tuple[str, str], x: str) -> tuple[str, str]:
    slots = {"x": x, "n": str(rng.randint(2, 20)), "c": rng.choice("abcdefghklmnprstw")}
    return pair[0].format(**slots), pair[1].format(**slots)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text).strip("_").replace("__", "_").lower()


def _doc(rng: random.Random, text: str) -> str:
    return f'    """{text}"""\n' if rng.random() < 0.7 else ""


def _filter(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, test = _vary(rng, rng.choice(CONDITIONS), "x")
    head = f"def keep_{_slug(words)}({items}):\n" + _doc(rng, f"Return the {items} that are {words}.")
    body = f"    return [x for x in {items} if {test}]" if rng.random() < 0.5 else f"    result = []\n    for x in {items}:\n        if {test}:\n            result.append(x)\n    return result"
    return f"returns the {items} in a list that are {words}", head + body


def _map(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, value = _vary(rng, rng.choice(MAPS), "x")
    head = f"def {items}_{_slug(words)}({items}):\n" + _doc(rng, f"Return the {items} {words}.")
    body = f"    return [{value} for x in {items}]" if rng.random() < 0.5 else f"    result = []\n    for x in {items}:\n        result.append({value})\n    return result"
    return f"returns all {items} {words}", head + body


def _count(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, test = _vary(rng, rng.choice(CONDITIONS), "x")
    head = f"def count_{_slug(words)}({items}):\n" + _doc(rng, f"Count the {items} that are {words}.")
    return f"counts how many {items} are {words}", head + f"    count = 0\n    for x in {items}:\n        if {test}:\n            count += 1\n    return count"


def _total(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, test = _vary(rng, rng.choice(CONDITIONS), "x")
    head = f"def sum_{_slug(words)}({items}):\n" + _doc(rng, f"Add up the {items} that are {words}.")
    return f"adds up the {items} that are {words}", head + f"    total = 0\n    for x in {items}:\n        if {test}:\n            total += x\n    return total"


def _text_filter(rng: random.Random) -> Code:
    items = rng.choice(TEXTS)
    words, test = _vary(rng, rng.choice(TEXT_TESTS), "s")
    head = f"def select_{items}({items}):\n" + _doc(rng, f"Return the {items} that {words}.")
    return f"returns the {items} that {words}", head + f"    return [s for s in {items} if {test}]"


def _text_map(rng: random.Random) -> Code:
    items = rng.choice(TEXTS)
    words, value = _vary(rng, rng.choice(TEXT_MAPS), "s")
    head = f"def change_{items}({items}):\n" + _doc(rng, f"Return the {items} {words}.")
    return f"returns a list of {items} {words}", head + f"    result = []\n    for s in {items}:\n        result.append({value})\n    return result"


def _first(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, test = _vary(rng, rng.choice(CONDITIONS), "x")
    head = f"def first_{_slug(words)}({items}):\n" + _doc(rng, f"Return the first of the {items} that is {words}, or None.")
    return f"finds the first of the {items} that is {words}", head + f"    for x in {items}:\n        if {test}:\n            return x\n    return None"


def _field(rng: random.Random) -> Code:
    field, how, fn = rng.choice(FIELDS), *rng.choice((("highest", "max"), ("lowest", "min")))
    head = f"def {how}_{field}(items):\n" + _doc(rng, f"Return the item with the {how} {field}.")
    return f"returns the dictionary with the {how} '{field}' in a list", head + f"    if not items:\n        return None\n    return {fn}(items, key=lambda item: item['{field}'])"


def _group(rng: random.Random) -> Code:
    field = rng.choice(FIELDS)
    head = f"def group_by_{field}(items):\n" + _doc(rng, f"Group the items by their {field}.")
    return f"groups a list of dictionaries by '{field}'", head + f"    groups = {{}}\n    for item in items:\n        key = item['{field}']\n        groups.setdefault(key, []).append(item)\n    return groups"


def _guard(rng: random.Random) -> Code:
    low = rng.randint(0, 9)
    high, field = low + rng.randint(5, 90), rng.choice(FIELDS)
    head = f"def check_{field}({field}):\n" + _doc(rng, f"Return the {field} if it lies between {low} and {high}.")
    return f"checks that a {field} lies between {low} and {high} and raises ValueError if not", head + f"    if {field} < {low} or {field} > {high}:\n        raise ValueError('{field} must lie between {low} and {high}')\n    return {field}"


def _read(rng: random.Random) -> Code:
    items = rng.choice(TEXTS)
    words, value = _vary(rng, rng.choice(TEXT_MAPS), "line")
    head = f"def read_{items}(path):\n" + _doc(rng, f"Read the {items} from a file, {words}.")
    return f"reads {items} from a file, one on each line, and returns them {words}", head + f"    with open(path, encoding='utf-8') as file:\n        lines = file.read().splitlines()\n    return [{value} for line in lines if line]"


def _class(rng: random.Random) -> Code:
    name, field, start = rng.choice(THINGS), rng.choice(FIELDS), rng.randint(0, 10)
    return f"is a class {name} with a {field} that starts at {start} and can be raised and lowered", (
        f"class {name}:\n    def __init__(self):\n        self.{field} = {start}\n\n    def raise_{field}(self, amount):\n        self.{field} += amount\n        return self.{field}\n\n"
        f"    def lower_{field}(self, amount):\n        self.{field} -= amount\n        return self.{field}"
    )


def _convert(rng: random.Random) -> Code:
    a, b, f = rng.choice((("hours", "minutes", 60), ("metres", "centimetres", 100), ("days", "hours", 24), ("kilograms", "grams", 1000), ("weeks", "days", 7), ("feet", "inches", 12)))
    if rng.random() < 0.5:
        return f"converts {a} to {b}", f"def {a}_to_{b}({a}):\n" + _doc(rng, f"Convert {a} to {b}.") + f"    return {a} * {f}"
    return f"converts {b} to {a}", f"def {b}_to_{a}({b}):\n" + _doc(rng, f"Convert {b} to {a}.") + f"    return {b} / {f}"


def _loop(rng: random.Random) -> Code:
    n, words = rng.randint(2, 9), rng.choice(("counts down", "counts up"))
    name = _slug(words)
    step = f"range(start, 0, -{n})" if words == "counts down" else f"range(0, start, {n})"
    return f"{words} in steps of {n} and prints each number", f"def {name}(start):\n" + _doc(rng, f"Print the numbers in steps of {n}.") + f"    for x in {step}:\n        print(x)\n    print('done')"


# Held out tasks.
def _map_filter(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, test = _vary(rng, rng.choice(CONDITIONS), "x")
    change, value = _vary(rng, rng.choice(MAPS), "x")
    return f"returns the {items} that are {words}, {change}", f"def change_{items}({items}):\n    return [{value} for x in {items} if {test}]"


def _count_text(rng: random.Random) -> Code:
    items = rng.choice(TEXTS)
    words, test = _vary(rng, rng.choice(TEXT_TESTS), "s")
    return f"counts the {items} that {words}", f"def count_{items}({items}):\n    count = 0\n    for s in {items}:\n        if {test}:\n            count += 1\n    return count"


def _last(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, test = _vary(rng, rng.choice(CONDITIONS), "x")
    return f"finds the last of the {items} that is {words}", f"def last_{_slug(words)}({items}):\n    for x in reversed({items}):\n        if {test}:\n            return x\n    return None"


def _total_field(rng: random.Random) -> Code:
    field = rng.choice(FIELDS)
    return f"adds up the '{field}' of all dictionaries in a list", f"def total_{field}(items):\n    total = 0\n    for item in items:\n        total += item['{field}']\n    return total"


def _any(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    words, test = _vary(rng, rng.choice(CONDITIONS), "x")
    return f"says whether any of the {items} is {words}", f"def any_{_slug(words)}({items}):\n    for x in {items}:\n        if {test}:\n            return True\n    return False"


def _mean(rng: random.Random) -> Code:
    items = rng.choice(ITEMS)
    return f"returns the mean of a list of {items}, or zero if it is empty", f"def mean_{items}({items}):\n    if not {items}:\n        return 0\n    return sum({items}) / len({items})"


TASKS: dict[str, Callable[[random.Random], Code]] = {
    "filter": _filter, "map": _map, "count": _count, "total": _total, "text_filter": _text_filter, "text_map": _text_map,
    "first": _first, "field": _field, "group": _group, "guard": _guard, "read": _read, "class": _class, "convert": _convert, "loop": _loop,
    "map_filter": _map_filter, "count_text": _count_text, "last": _last, "total_field": _total_field,
    "any": _any, "mean": _mean,
}
HELD_OUT = frozenset({"map_filter", "count_text", "last", "total_field", "any", "mean"})
ASKS = (
    "Write a Python function that {what}.", "I need a Python function. It {what}.", "Show me Python code that {what}.",
    "Can you write a function in Python that {what}?", "Python, please: a function that {what}.",
)


def _maker(name: str) -> Maker:
    def make(rng: random.Random) -> Example:
        what, code = TASKS[name](rng)
        request = rng.choice(ASKS).format(what=what)
        if what.startswith("is a class"):
            request = f"Write a Python class. It {what}."
        lead = pick(rng, "|Here is the function:|Here it is:|This function does it:")
        block = f"```python\n{code}\n```"
        return one("code", name, request, f"{lead}\n{block}" if lead else block)

    return make


def makers() -> dict[str, Maker]:
    """Every code template by name."""
    return {name: _maker(name) for name in TASKS}

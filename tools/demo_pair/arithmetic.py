# ruff: noqa: E501 (sentences and templates stay on one line)
"""Arithmetic: word problems with worked steps that end in "The answer is N."."""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.demo_pair import words
from tools.demo_pair.example import Example, Maker, one, pick

Problem = tuple[str, list[str], str]


def _people(rng: random.Random) -> tuple[str, str]:
    first, second = rng.sample(words.NAMES, 2)
    return first, second


def _shopping(rng: random.Random) -> Problem:
    who, _ = _people(rng)
    a, b = rng.sample(words.FOODS, 2)
    n, p, m, q = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 9), rng.randint(2, 12)
    text = f"{who} buys {n} bags of {a} for {p} euros each and {m} bags of {b} for {q} euros each. How much does {who} pay?"
    return text, [f"The {a} cost {n} * {p} = {n * p} euros.", f"The {b} cost {m} * {q} = {m * q} euros.", f"Together that is {n * p} + {m * q} = {n * p + m * q} euros."], f"{n * p + m * q} euros"


def _change(rng: random.Random) -> Problem:
    who, _ = _people(rng)
    n, p = rng.randint(2, 9), rng.randint(2, 9)
    note = rng.choice([x for x in (20, 50, 100) if x > n * p] or [100])
    text = f"A {rng.choice(words.GOODS)} costs {p} euros. {who} buys {n} of them and pays with {note} euros. How much change is there?"
    return text, [f"The price is {n} * {p} = {n * p} euros.", f"The change is {note} - {n * p} = {note - n * p} euros."], f"{note - n * p} euros"


def _sharing(rng: random.Random) -> Problem:
    who, _ = _people(rng)
    friends, each, left = rng.randint(3, 9), rng.randint(3, 12), rng.randint(0, 2)
    total, food = friends * each + left, rng.choice(("plums", "pears", "apples", "walnuts", "cards", "coins", "marbles"))
    text = f"{who} has {total} {food} and shares them equally among {friends} children. How many does each child get, and how many are left?"
    return text, [f"{friends} * {each} = {friends * each}, so each child gets {each}.", f"{total} - {friends * each} = {left}, so {left} are left."], f"{each} each and {left} left"


def _distance(rng: random.Random) -> Problem:
    a, b = rng.sample(words.CITIES, 2)
    v, t, w, u = rng.randint(4, 12) * 10, rng.randint(2, 6), rng.randint(3, 9) * 10, rng.randint(2, 4)
    text = f"A train from {a} to {b} runs at {v} km per hour for {t} hours and then at {w} km per hour for {u} hours. How long is the way?"
    return text, [f"The first part is {v} * {t} = {v * t} km.", f"The second part is {w} * {u} = {w * u} km.", f"In total it is {v * t} + {w * u} = {v * t + w * u} km."], f"{v * t + w * u} km"


def _ages(rng: random.Random) -> Problem:
    a, b = _people(rng)
    age, gap, years = rng.randint(6, 30), rng.randint(2, 15), rng.randint(2, 12)
    text = f"{a} is {age} years old. {b} is {gap} years older. How old will {b} be in {years} years?"
    return text, [f"Now {b} is {age} + {gap} = {age + gap} years old.", f"In {years} years {b} will be {age + gap} + {years} = {age + gap + years}."], f"{age + gap + years}"


def _area(rng: random.Random) -> Problem:
    place = rng.choice(("garden", "room", "field", "yard", "hall", "terrace"))
    a, b, p = rng.randint(3, 19), rng.randint(3, 19), rng.randint(2, 9)
    text = f"A {place} is {a} m long and {b} m wide. Covering one square metre costs {p} euros. What does it cost in all?"
    return text, [f"The area is {a} * {b} = {a * b} square metres.", f"The cost is {a * b} * {p} = {a * b * p} euros."], f"{a * b * p} euros"


def _percent(rng: random.Random) -> Problem:
    price, rate = rng.randint(2, 20) * 20, rng.choice((5, 10, 15, 20, 25, 30, 40, 50))
    off = price * rate // 100
    text = f"A {rng.choice(words.GOODS)} costs {price} euros. It is reduced by {rate} percent. What is the new price?"
    return text, [f"{rate} percent of {price} is {price} * {rate} / 100 = {off}.", f"The new price is {price} - {off} = {price - off} euros."], f"{price - off} euros"


def _saving(rng: random.Random) -> Problem:
    who, _ = _people(rng)
    start, week, n, spent = rng.randint(5, 60), rng.randint(3, 15), rng.randint(3, 12), rng.randint(2, 20)
    total = start + week * n
    text = f"{who} has {start} euros and saves {week} euros a week for {n} weeks. Then {who} spends {spent} euros. How much is left?"
    return text, [f"In {n} weeks {who} saves {n} * {week} = {n * week} euros.", f"That makes {start} + {n * week} = {total} euros.", f"After spending it is {total} - {spent} = {total - spent} euros."], f"{total - spent} euros"


def _chain(rng: random.Random) -> Problem:
    a, b, c, d = rng.randint(2, 30), rng.randint(2, 12), rng.randint(2, 40), rng.randint(2, 60)
    first, second = a * b, a * b + c
    text = pick(rng, "What is {a} * {b} + {c} - {d}?|Calculate {a} * {b} + {c} - {d}.|Work out {a} * {b} + {c} - {d} step by step.").format(a=a, b=b, c=c, d=d)
    return text, [f"First {a} * {b} = {first}.", f"Then {first} + {c} = {second}.", f"Then {second} - {d} = {second - d}."], f"{second - d}"


def _sum_list(rng: random.Random) -> Problem:
    items = [rng.randint(2, 60) for _ in range(rng.randint(4, 6))]
    steps, total = [], items[0]
    for item in items[1:]:
        steps.append(f"{total} + {item} = {total + item}.")
        total += item
    text = pick(rng, "Add the numbers {x}.|What is the sum of {x}?|Find the total of {x}.").format(x=", ".join(map(str, items)))
    return text, steps, str(total)


def _average(rng: random.Random) -> Problem:
    who, _ = _people(rng)
    n, mean = rng.choice((3, 4, 5)), rng.randint(6, 40)
    items = [mean + rng.randint(-5, 5) for _ in range(n - 1)]
    items.append(mean * n - sum(items))
    text = f"{who} scored {', '.join(map(str, items))} points in {n} games. What is the average?"
    return text, [f"The sum is {' + '.join(map(str, items))} = {mean * n}.", f"Divided by {n} that is {mean * n} / {n} = {mean}."], f"{mean} points"


def _double(rng: random.Random) -> Problem:
    a, b = _people(rng)
    n, f, less = rng.randint(3, 40), rng.randint(2, 6), rng.randint(1, 9)
    thing = rng.choice(("stamps", "books", "shells", "postcards", "records", "buttons"))
    text = f"{a} has {n} {thing}. {b} has {f} times as many, less {less}. How many do they have together?"
    times = n * f
    return text, [f"{f} times {n} is {f} * {n} = {times}.", f"{b} has {times} - {less} = {times - less}.", f"Together they have {n} + {times - less} = {n + times - less}."], f"{n + times - less} {thing}"


def _boxes(rng: random.Random) -> Problem:
    rows, each, broken = rng.randint(3, 15), rng.randint(4, 24), rng.randint(1, 9)
    thing = rng.choice(("jars", "cups", "bottles", "tiles", "eggs", "candles"))
    text = f"A shop gets {rows} boxes with {each} {thing} each. {broken} {thing} are broken. How many are whole?"
    return text, [f"There are {rows} * {each} = {rows * each} {thing}.", f"Whole are {rows * each} - {broken} = {rows * each - broken}."], f"{rows * each - broken} {thing}"


def _time(rng: random.Random) -> Problem:
    hour, minute, length = rng.randint(7, 19), rng.choice((0, 5, 10, 15, 20, 30, 40, 45)), rng.randint(2, 17) * 5
    end = hour * 60 + minute + length
    text = f"A film starts at {hour}:{minute:02d} and lasts {length} minutes. When does it end?"
    return text, [f"{hour}:{minute:02d} is {hour} * 60 + {minute} = {hour * 60 + minute} minutes.", f"{hour * 60 + minute} + {length} = {end} minutes.", f"That is {end // 60}:{end % 60:02d}."], f"{end // 60}:{end % 60:02d}"


# Held out: new wordings of the kinds of sum above.
def _tank(rng: random.Random) -> Problem:
    start, rate, n, out = rng.randint(20, 90), rng.randint(3, 12), rng.randint(3, 12), rng.randint(5, 20)
    total = start + rate * n
    text = f"A tank holds {start} litres. For {n} minutes, {rate} litres a minute flow in. Then {out} litres are taken out. How many litres are in it now?"
    return text, [f"In {n} minutes {n} * {rate} = {n * rate} litres flow in.", f"That makes {start} + {n * rate} = {total} litres.", f"Then it is {total} - {out} = {total - out} litres."], f"{total - out} litres"


def _jar(rng: random.Random) -> Problem:
    who, _ = _people(rng)
    start, week, n, spent = rng.randint(5, 60), rng.randint(3, 15), rng.randint(3, 12), rng.randint(2, 20)
    total = start + week * n
    text = f"{who} keeps {start} euros in a jar and puts in {week} euros a week for {n} weeks. Then {who} takes out {spent} euros. How much is in the jar?"
    return text, [f"In {n} weeks {who} saves {n} * {week} = {n * week} euros.", f"That makes {start} + {n * week} = {total} euros.", f"After that it is {total} - {spent} = {total - spent} euros."], f"{total - spent} euros"


def _tulips(rng: random.Random) -> Problem:
    rows, each, lost = rng.randint(3, 15), rng.randint(4, 24), rng.randint(1, 9)
    thing = rng.choice(("tulips", "roses", "beans", "trees", "cabbages"))
    text = f"A gardener plants {rows} rows with {each} {thing} each. {lost} {thing} do not come up. How many are left?"
    return text, [f"There are {rows} * {each} = {rows * each} {thing}.", f"Left are {rows * each} - {lost} = {rows * each - lost}."], f"{rows * each - lost} {thing}"


def _market(rng: random.Random) -> Problem:
    who, _ = _people(rng)
    a, b = rng.sample(words.FOODS, 2)
    n, p, m, q = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 9), rng.randint(2, 12)
    text = f"At the market {who} takes {n} baskets of {a} at {p} euros each and {m} baskets of {b} at {q} euros each. What does {who} pay in all?"
    return text, [f"The {a} cost {n} * {p} = {n * p} euros.", f"The {b} cost {m} * {q} = {m * q} euros.", f"Together that is {n * p} + {m * q} = {n * p + m * q} euros."], f"{n * p + m * q} euros"


def _chain_words(rng: random.Random) -> Problem:
    a, b, c, d = rng.randint(2, 30), rng.randint(2, 12), rng.randint(2, 40), rng.randint(2, 60)
    first, second = a * b, a * b + c
    text = f"Multiply {a} * {b}, add {c} and take away {d}. What do you get?"
    return text, [f"First {a} * {b} = {first}.", f"Then {first} + {c} = {second}.", f"Then {second} - {d} = {second - d}."], f"{second - d}"


def _list_words(rng: random.Random) -> Problem:
    items = [rng.randint(2, 60) for _ in range(rng.randint(3, 5))]
    steps, total = [], items[0]
    for item in items[1:]:
        steps.append(f"{total} + {item} = {total + item}.")
        total += item
    return f"How much do the numbers {', '.join(map(str, items))} make together?", steps, str(total)


def _older(rng: random.Random) -> Problem:
    a, b = _people(rng)
    age, gap, years = rng.randint(6, 30), rng.randint(2, 15), rng.randint(2, 12)
    text = f"{a} is {age}, and {b} is {gap} years older. What will be the age of {b} in {years} years?"
    return text, [f"Now {b} is {age} + {gap} = {age + gap} years old.", f"In {years} years {b} will be {age + gap} + {years} = {age + gap + years}."], f"{age + gap + years}"


PROBLEMS: dict[str, Callable[[random.Random], Problem]] = {
    "shopping": _shopping, "change": _change, "sharing": _sharing, "distance": _distance, "ages": _ages, "area": _area,
    "percent": _percent, "saving": _saving, "chain": _chain, "sum_list": _sum_list, "average": _average, "double": _double,
    "boxes": _boxes, "time": _time, "tank": _tank, "jar": _jar, "tulips": _tulips, "market": _market,
    "chain_words": _chain_words, "list_words": _list_words, "older": _older,
}
HELD_OUT = frozenset({"tank", "jar", "tulips", "market", "chain_words", "list_words", "older"})


def _maker(name: str) -> Maker:
    def make(rng: random.Random) -> Example:
        text, steps, answer = PROBLEMS[name](rng)
        prefix = pick(rng, "||Solve this step by step. |Please show the steps. ")
        return one("arithmetic", name, f"{prefix} {text}".strip(), f"{' '.join(steps)}\nThe answer is {answer}.")

    return make


def makers() -> dict[str, Maker]:
    """Every arithmetic template by name."""
    return {name: _maker(name) for name in PROBLEMS}

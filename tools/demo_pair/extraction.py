# ruff: noqa: E501 (sentences and templates stay on one line)
"""Extraction: a short text of some kind, and its facts as JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tools.demo_pair import words
from tools.demo_pair.example import Example, Maker, one, pick

Record = dict[str, str | int]
Source = tuple[Record, tuple[str, ...]]


def _date(rng: random.Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(words.MONTHS)} {rng.randint(2019, 2029)}"


def _name(rng: random.Random) -> str:
    return f"{rng.choice(words.NAMES)} {rng.choice(words.SURNAMES)}"


def _code(rng: random.Random) -> str:
    letters = "".join(rng.choice("ABCDEFGHKLMNPRSTUVWXZ") for _ in range(2))
    return f"{letters}-{rng.randint(1000, 9999)}"


def _hour(rng: random.Random) -> str:
    return f"{rng.randint(7, 20)}:{rng.choice(('00', '15', '30', '45'))}"


def _order(rng: random.Random) -> Source:
    return {"customer": _name(rng), "item": rng.choice(words.GOODS), "quantity": rng.randint(2, 40), "order_id": _code(rng)}, (
        "{customer} has ordered {quantity} pieces of the {item}. The order number is {order_id}.",
        "Order {order_id}: please send {quantity} times the {item} to {customer}.",
        "We have received an order from {customer} for the {item}, {quantity} in all, filed as {order_id}.",
    )


def _contact(rng: random.Random) -> Source:
    name = _name(rng)
    first, last = name.lower().split()
    return {"name": name, "job": rng.choice(words.JOBS), "city": rng.choice(words.CITIES), "email": f"{first}.{last}@example.com"}, (
        "My name is {name} and I work as a {job} in {city}. You can reach me at {email}.",
        "{name}, {job}, lives in {city}. Mail: {email}.",
        "Please write to {email}. It belongs to {name}, who is a {job} from {city}.",
    )


def _event(rng: random.Random) -> Source:
    what = pick(rng, "book fair|spring concert|open day|street market|film night|chess evening|poetry reading|cooking class")
    return {"event": what, "city": rng.choice(words.CITIES), "date": _date(rng), "time": _hour(rng)}, (
        "The {event} in {city} takes place on {date} and starts at {time}.",
        "Do not miss the {event}! It begins at {time} on {date} in {city}.",
        "On {date} we meet in {city} for the {event}. Doors open at {time}.",
    )


def _invoice(rng: random.Random) -> Source:
    return {"company": rng.choice(words.COMPANIES), "invoice": _code(rng), "amount": rng.randint(20, 2000), "due": _date(rng)}, (
        "Invoice {invoice} from {company}: {amount} euros, due on {due}.",
        "{company} asks you to pay {amount} euros by {due}. Please quote {invoice}.",
        "Please note that {amount} euros are owed to {company} until {due} (reference {invoice}).",
    )


def _flight(rng: random.Random) -> Source:
    a, b = rng.sample(words.CITIES, 2)
    return {"passenger": _name(rng), "from": a, "to": b, "departure": _hour(rng), "seat": f"{rng.randint(1, 32)}{rng.choice('ABCDEF')}"}, (
        "{passenger} flies from {from} to {to} at {departure}, seat {seat}.",
        "Boarding pass for {passenger}. {from} to {to}, leaving at {departure}. Your seat is {seat}.",
        "Seat {seat} on the {departure} flight from {from} to {to} is booked for {passenger}.",
    )


def _job(rng: random.Random) -> Source:
    return {"company": rng.choice(words.COMPANIES), "position": rng.choice(words.JOBS), "city": rng.choice(words.CITIES), "hours": rng.randint(20, 40)}, (
        "{company} is looking for a {position} in {city}, {hours} hours a week.",
        "Wanted: {position} for {hours} hours a week. Apply to {company}, {city}.",
        "In {city}, {company} offers a job as a {position} with {hours} hours a week.",
    )


def _review(rng: random.Random) -> Source:
    mood, good = rng.choice((("positive", "It works very well."), ("positive", "I would buy it again."), ("negative", "It broke after a week."), ("negative", "I sent it back.")))
    return {"product": rng.choice(words.GOODS), "stars": rng.randint(4, 5) if mood == "positive" else rng.randint(1, 2), "reviewer": rng.choice(words.NAMES), "mood": mood}, (
        "{reviewer} gave the {product} {stars} stars. " + good,
        "{stars} stars for the {product}. " + good + " Written by {reviewer}.",
        "Review by {reviewer} of the {product}: {stars} stars. " + good,
    )


def _meeting(rng: random.Random) -> Source:
    topic = pick(rng, "the new website|the budget|the summer plan|the office move|the training week|the price list|the safety rules")
    return {"topic": topic, "day": rng.choice(words.DAYS), "time": _hour(rng), "room": rng.randint(101, 420), "host": rng.choice(words.NAMES)}, (
        "{host} invites you to talk about {topic} on {day} at {time} in room {room}.",
        "Meeting about {topic}: {day}, {time}, room {room}. Please tell {host} if you cannot come.",
        "On {day} at {time}, {host} will hold a meeting in room {room}. The subject is {topic}.",
    )


def _parcel(rng: random.Random) -> Source:
    return {"tracking": _code(rng), "city": rng.choice(words.CITIES), "weight_kg": rng.randint(1, 30), "status": pick(rng, "in transit|delivered|delayed|at customs")}, (
        "Parcel {tracking} to {city} weighs {weight_kg} kg and is {status}.",
        "Your parcel to {city} is {status}. Number: {tracking}. Weight: {weight_kg} kg.",
        "We weighed {tracking} at {weight_kg} kg. It goes to {city}, and it is {status}.",
    )


def _weather(rng: random.Random) -> Source:
    return {"city": rng.choice(words.CITIES), "day": rng.choice(words.DAYS), "temperature": rng.randint(1, 34), "sky": pick(rng, "sunny|cloudy|rainy|windy|foggy|clear")}, (
        "On {day} it will be {sky} in {city} with {temperature} degrees.",
        "Forecast for {city}: {day} {sky}, {temperature} degrees.",
        "{temperature} degrees and {sky}: that is the outlook for {city} on {day}.",
    )


def _book(rng: random.Random) -> Source:
    a = pick(rng, "The Silent|The Last|The Blue|A Winter|The Broken|Beyond the|The Hidden|My Father's|The Long")
    b = pick(rng, "River|Garden|Letter|Mountain|Harbour|Clock|Winter|Orchard|Road|Window")
    return {"title": f"{a} {b}", "author": _name(rng), "year": rng.randint(1950, 2025), "pages": rng.randint(90, 800)}, (
        "{title} by {author} came out in {year} and has {pages} pages.",
        "In {year}, {author} published {title}, a book of {pages} pages.",
        "{author}: {title}. {pages} pages, first printed in {year}.",
    )


def _recipe(rng: random.Random) -> Source:
    a, b = rng.sample(words.FOODS, 2)
    return {"dish": f"{a} with {b}", "minutes": rng.randint(10, 90), "servings": rng.randint(2, 8), "cook": rng.choice(words.NAMES)}, (
        "{cook} makes {dish} in {minutes} minutes. It serves {servings}.",
        "For {servings} people: {dish}, ready in {minutes} minutes. A recipe by {cook}.",
        "The recipe of {cook} for {dish} takes {minutes} minutes and is enough for {servings} people.",
    )


def _loan(rng: random.Random) -> Source:
    return {"reader": _name(rng), "item": rng.choice(words.THINGS), "lent": _date(rng), "days": rng.randint(3, 30)}, (
        "{reader} borrowed the {item} on {lent} for {days} days.",
        "The {item} was lent to {reader} on {lent}. It must be back after {days} days.",
        "Lent for {days} days from {lent}: the {item}, to {reader}.",
    )


def _match(rng: random.Random) -> Source:
    a, b = rng.sample(words.CITIES, 2)
    return {"home": a, "away": b, "home_goals": rng.randint(0, 6), "away_goals": rng.randint(0, 6), "day": rng.choice(words.DAYS)}, (
        "On {day}, {home} played {away} at home. {home} scored {home_goals}, {away} scored {away_goals}.",
        "{home} against {away} ended {home_goals} to {away_goals} on {day}.",
        "The match of {day}: {home} {home_goals}, {away} {away_goals}.",
    )


# Held out kinds.
def _rental(rng: random.Random) -> Source:
    return {"tenant": _name(rng), "city": rng.choice(words.CITIES), "rooms": rng.randint(2, 6), "rent": rng.randint(300, 1900)}, (
        "{tenant} rents a flat with {rooms} rooms in {city} for {rent} euros a month.",
        "A flat in {city}, {rooms} rooms, {rent} euros. The tenant is {tenant}.",
    )


def _repair(rng: random.Random) -> Source:
    return {"ticket": _code(rng), "device": rng.choice(words.GOODS), "customer": _name(rng), "ready": rng.choice(words.DAYS)}, (
        "Repair {ticket}: the {device} of {customer} will be ready on {ready}.",
        "{customer} brought in a {device}. It can be collected on {ready} with the number {ticket}.",
    )


def _course(rng: random.Random) -> Source:
    what = pick(rng, "pottery|drawing|first aid|Spanish|swimming|carpentry|photography|bookbinding")
    return {"course": what, "teacher": _name(rng), "start": _date(rng), "places": rng.randint(6, 25)}, (
        "The course in {course} with {teacher} starts on {start} and has {places} places.",
        "{teacher} teaches {course} from {start}. There are {places} places.",
    )


def _donation(rng: random.Random) -> Source:
    cause = pick(rng, "the library|the animal shelter|the choir|the school garden|the fire brigade|the museum")
    return {"donor": _name(rng), "amount": rng.randint(5, 900), "cause": cause, "date": _date(rng)}, (
        "On {date}, {donor} gave {amount} euros to {cause}.",
        "{donor} has donated {amount} euros. The money is for {cause} and arrived on {date}.",
    )


def _shift(rng: random.Random) -> Source:
    return {"worker": _name(rng), "job": rng.choice(words.JOBS), "day": rng.choice(words.DAYS), "start": _hour(rng)}, (
        "{worker} works as a {job} on {day}, starting at {start}.",
        "Shift plan for {day}: {worker}, {job}, begins at {start}.",
    )


KINDS: dict[str, Callable[[random.Random], Source]] = {
    "order": _order, "contact": _contact, "event": _event, "invoice": _invoice, "flight": _flight, "job": _job, "review": _review,
    "meeting": _meeting, "parcel": _parcel, "weather": _weather, "book": _book, "recipe": _recipe, "loan": _loan, "match": _match,
    "rental": _rental, "repair": _repair, "course": _course, "donation": _donation, "shift": _shift,
}
HELD_OUT = frozenset({"rental", "repair", "course", "donation", "shift"})

ASKS = (
    "Extract the {keys} as JSON.\n\n{text}", "Return a JSON object with the keys {keys}.\n\nText: {text}",
    "{text}\n\nGive me the {keys} as JSON.", "Read the text and fill in {keys}. Answer with JSON only.\n\n{text}",
)


def _keys(record: Record) -> str:
    names = list(record)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _maker(name: str) -> Maker:
    def make(rng: random.Random) -> Example:
        record, texts = KINDS[name](rng)
        text = rng.choice(texts).format(**record)
        if rng.random() < 0.3:
            names = list(record)
            names.remove(rng.choice(names))
            record = {key: record[key] for key in names}
        indent = 2 if rng.random() < 0.8 else None
        ask = rng.choice(ASKS).format(keys=_keys(record), text=text)
        if indent is None:
            ask = ask.replace("JSON", "compact JSON", 1)
        return one("extraction", name, ask, json.dumps(record, indent=indent))

    return make


def makers() -> dict[str, Maker]:
    """Every extraction template by name."""
    return {name: _maker(name) for name in KINDS}

# ruff: noqa: E501 (sentences and templates stay on one line)
"""Prose: stories from plots, letters, diary entries and descriptions, each with an end."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from tools.demo_pair import words
from tools.demo_pair.example import Example, Maker, fill, one, pick, sentence_case
from tools.demo_pair.plots import HELD_OUT_PLOTS, INSTRUMENTS, PLOTS, Plot

POOLS: dict[str, Sequence[str]] = {
    "job": words.JOBS, "place": words.PLACES, "season": words.SEASONS, "weather": words.WEATHER,
    "time": words.TIMES, "thing": words.THINGS, "animal": words.ANIMALS, "kin": words.KIN,
    "food": words.FOODS, "city": words.CITIES, "instrument": INSTRUMENTS, "month": words.MONTHS,
    "day": words.DAYS, "colour": words.COLOURS,
}

STORY_REQUESTS = (
    "Write a short story about {hero}, a {job}, who {goal}.",
    "Tell me a story about a {job} named {hero} who {goal}.",
    "Please write a few sentences about {hero}, who {goal}. The story is set in {place}.",
    "I would like a short tale: {hero} {goal}. Give it a good ending.",
    "Write a story with two people, {hero} and {friend}, in which {hero} {goal}.",
)


def cast(rng: random.Random) -> dict[str, str]:
    """A hero and a friend with pronouns that agree."""
    woman, friend_woman = rng.random() < 0.5, rng.random() < 0.5
    hero = rng.choice(words.WOMEN if woman else words.MEN)
    friend = rng.choice([n for n in (words.WOMEN if friend_woman else words.MEN) if n != hero])
    return {
        "hero": hero, "friend": friend, "he": "she" if woman else "he", "his": "her" if woman else "his",
        "him": "her" if woman else "him", "his_friend": "her" if friend_woman else "his",
    }


def _articles(text: str) -> str:
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


def tell(rng: random.Random, plot: Plot, slots: dict[str, str]) -> list[str]:
    """The sentences of one telling, one string a beat; a middle beat may be left out."""
    beats = list(plot[2])
    if rng.random() < 0.35:
        del beats[rng.choice((2, 3))]
    return [_articles(sentence_case(fill(rng, pick(rng, beat), slots, POOLS))) for beat in beats]


def story(plot: Plot) -> Maker:
    """Requests for a story with this plot, and passages of it to be continued."""

    def make(rng: random.Random) -> Example:
        slots = cast(rng)
        beats = tell(rng, plot, slots)
        if rng.random() < 0.35:
            cut = rng.choice((2, 2, 3))
            opening = " ".join(beats[:cut])
            ask = pick(rng, "Continue this story:|Please finish this story:|How does this story go on?")
            return one("prose", plot[0], f"{ask}\n\n{opening}", " ".join(beats[cut:]))
        slots["goal"] = fill(rng, plot[1], slots, POOLS)
        request = _articles(fill(rng, rng.choice(STORY_REQUESTS), slots, POOLS))
        return one("prose", plot[0], request, " ".join(beats))

    return make


LETTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "thanks": ("thanking {friend} for the {thing}", (
        "thank you for the {thing}, which arrived on {day}.|the {thing} came on {day}, and I have shown it to everyone.",
        "It stands on my desk, where the light falls on it in the morning.|My {kin} wants to borrow it already.",
        "You remembered what I said in {month}, and that made me glad.|I had looked for one like it for years.",
        "Come and see us when the {food} are ripe.|Let me send you some {food} in return.",
    )),
    "invitation": ("inviting {friend} to stay in {month}", (
        "we have painted the spare room, and it is waiting for you.|will you come and stay with us in {month}?",
        "The train from {city} arrives at four, and I will be at the station.|There is a slow train from {city}, and we can fetch you with the cart.",
        "We can walk to {place} and pick {food} on the way.|If the weather is bad, we will play cards and complain about it.",
        "Bring warm socks and nothing else.|Write soon, so that I can tell my {kin}.",
    )),
    "apology": ("apologising to {friend} for a late answer", (
        "I am sorry that I have not written since {month}.|please forgive this late answer.",
        "First the {animal} was ill, and then the roof began to leak.|I was in {city} for work, and your letter waited here in a drawer.",
        "I read it twice today, once standing and once with tea.|It made me laugh, above all the part about the {thing}.",
        "From now on I will answer within a week, and you may hold me to it.|Tell me how your {kin} is, and do not wait as long as I did.",
    )),
    "news": ("telling {friend} the news from home", (
        "there is news at last.|you asked for news, so here it is.",
        "The old {job} has retired, and a young one has come from {city}.|The {animal} has escaped again and was found in the church.",
        "My {kin} has bought a {thing} and talks of nothing else.|We had so many {food} this year that we gave them away by the bucket.",
        "Otherwise all is quiet, as you would expect here.|The river rose in {month}, but the house stayed dry.",
    )),
    # Held out.
    "farewell": ("saying goodbye before a long voyage", (
        "when you read this I shall be on my way to {city}.|my bags are packed, and the ship leaves on {day}.",
        "I leave you the {thing} and the key of the garden.|Please look after the {animal}, who likes {food}.",
        "Do not be sad, for I shall write from every harbour.|My {kin} cried a little and then gave me a list of things to buy.",
        "I shall be back before {month}, thinner and with stories.|Keep my chair by the fire.",
    )),
}

DIARY: dict[str, tuple[str, tuple[str, ...]]] = {
    "harvest": ("the harvest of {food}", (
        "Up at five. {weather}.|We began early, while {weather}.", "By noon we had filled nine baskets with {food}.|The {food} were small this year but sweet.",
        "{friend} fell off the ladder and landed in the straw, unhurt.|{friend} sang all day, mostly the same song.", "My back aches, but the cellar is full.|Tired, happy, and in bed by eight.",
    )),
    "first_day": ("the first day in a new job", (
        "Today I began as a {job}.|My first day as a {job} is over.", "I was shown around by {friend}, who talks fast and knows everything.|Nobody told me where the cups are, so I drank from a jar.",
        "I made two mistakes and was forgiven for both.|In the afternoon {weather}, and there was little to do.", "Tomorrow I will bring my own lunch.|I think I shall like it here.",
    )),
    "visit": ("a visit to {city}", (
        "We took the early train to {city}.|{city} at last.", "The market there is three streets long, and I bought a {thing}.|We climbed the tower, all two hundred steps of it.",
        "{friend} lost a hat on the bridge and watched it float away.|At lunch {friend} ordered {food} by mistake and liked it.", "We came home after dark with sore feet.|I could live there, I think, but only in {season}.",
    )),
    # Held out.
    "snow_day": ("a day when everything was closed by snow", (
        "Snow up to the window. No school, no post, no bread.|When I opened the door a wall of snow looked in.", "We dug a path to the house of {friend} and found that {friend} had dug one to us.|The {animal} refused to go out and was right.",
        "In the afternoon we told stories and roasted {food}.|I mended the {thing}, which has waited since {month}.", "It is still falling now, without a sound.|I hope that it never melts.",
    )),
}

SCENES: dict[str, tuple[str, tuple[str, ...]]] = {
    "harbour": ("a harbour", (
        "The boats lie close together, and their ropes creak when the water moves.|Nets hang between the masts like {colour} curtains.", "It is {season}, and {weather}.|In {season} the air tastes of salt and tar.",
        "A {job} sits on an upturned crate and eats {food}.|Gulls argue over a crust of bread.", "Out beyond the wall, a single sail is coming home.|When the bell rings at six, the whole place falls quiet.",
    )),
    "kitchen": ("a kitchen in the country", (
        "The table is older than the house and has the marks of a hundred knives.|Copper pans hang in a row above a {colour} stove.", "A pot of {food} simmers with the lid tilted.|There is always something drying on the line: herbs, {food}, or socks.",
        "The {animal} sleeps in the warmest place and will not be moved.|Through the window one sees that it is {season}.", "Whoever comes in is given a spoon and an opinion.|Nobody leaves this room hungry.",
    )),
    "station": ("a railway station at night", (
        "The last train left an hour ago, and the lamps hum.|One lamp is lit above the {colour} door of the waiting room.", "A {job} with a {thing} on the knees waits for the first train to {city}.|The timetable says {city}, but the clock has stopped.",
        "Outside, {weather}.|A {animal} walks along the platform as if it owned it.", "Toward five the rails begin to sing.|Then a door opens somewhere, and the smell of coffee comes out.",
    )),
    # Held out.
    "workshop": ("an old workshop", (
        "Every tool has its nail, and every nail has a painted shadow behind it.|The bench is {colour} with old paint and smooth as a stone.", "A {thing} lies in parts on a newspaper.|Dust turns slowly in the light, because {weather}.",
        "The {job} who works here measures twice, whistles, and cuts once.|On the shelf a radio speaks softly about the weather in {city}.", "In the evening the shavings are swept up for the stove.|Nothing here is new, and everything works.",
    )),
}


def _letter(name: str) -> Maker:
    about, beats = LETTERS[name]

    def make(rng: random.Random) -> Example:
        slots = cast(rng)
        ask = pick(rng, "Write a short letter from {hero}, {about}.|Help me write a letter {about}. Sign it as {hero}.|Please draft a friendly letter {about}, signed {hero}.")
        slots["about"] = fill(rng, about, slots, POOLS)
        request = fill(rng, ask, slots, POOLS)
        first, *rest = [fill(rng, pick(rng, beat), slots, POOLS) for beat in beats]
        close = pick(rng, "Yours,|With love,|Warm wishes,|Your friend,|As ever,")
        text = f"Dear {slots['friend']},\n\n{first} {' '.join(rest)}\n\n{close}\n{slots['hero']}"
        return one("prose", f"letter_{name}", _articles(request), _articles(text))

    return make


def _piece(kind: str, name: str) -> Maker:
    about, beats = (DIARY if kind == "diary" else SCENES)[name]
    asks = (
        "Write a diary entry about {about}.|Write what {hero} might note in a diary about {about}.|A short diary entry, please: {about}."
        if kind == "diary"
        else "Describe {about} in {season}.|Write a short description of {about}.|Paint {about} in words, in a few sentences."
    )

    def make(rng: random.Random) -> Example:
        slots = cast(rng)
        slots["about"] = fill(rng, about, slots, POOLS)
        request = fill(rng, pick(rng, asks), slots, POOLS)
        body = [_articles(sentence_case(fill(rng, pick(rng, beat), slots, POOLS))) for beat in beats]
        head = ""
        if kind == "diary":
            head = f"{rng.choice(words.DAYS)}, {rng.randint(1, 28)} {rng.choice(words.MONTHS)}. "
        return one("prose", f"{kind}_{name}", request, head + " ".join(body))

    return make


HELD_OUT = HELD_OUT_PLOTS | {"letter_farewell", "diary_snow_day", "scene_workshop"}


def makers() -> dict[str, Maker]:
    """Every prose template by name."""
    table: dict[str, Maker] = {plot[0]: story(plot) for plot in PLOTS}
    table.update({f"letter_{name}": _letter(name) for name in LETTERS})
    table.update({f"diary_{name}": _piece("diary", name) for name in DIARY})
    table.update({f"scene_{name}": _piece("scene", name) for name in SCENES})
    return table

# ruff: noqa: E501 (sentences and templates stay on one line)
"""Dialogue: advice, bookings, small decisions, messages and support, in one or several turns."""

from __future__ import annotations

import random

from tools.demo_pair import words
from tools.demo_pair.example import Example, Maker, Turn, pick
from tools.demo_pair.topics import HELD_OUT_TOPICS, TOPICS

SYSTEMS = (
    "You are a helpful assistant.", "You are a friendly assistant. Keep answers short.",
    "You answer politely and to the point.", "You are the assistant of a small library.",
)
ASKS = (
    "Can you give me some advice on {what}?", "I need help with {what}.", "What should I know about {what}?",
    "Any tips for {what}?", "I have trouble with {what}. What can I do?", "How do I get better at {what}?",
    "My {kin} asked me about {what}. What would you say?",
)
LEADS = (
    "Of course! Here are three tips for {what}.", "Gladly. For {what}, three things matter most.",
    "Sure. This usually helps with {what}:", "Yes, here is what I would suggest for {what}.",
)
CLOSES = (
    "Let me know how it goes.", "Good luck!", "Tell me if you would like more ideas.", "Start with the first one today.",
    "I hope that helps.",
)


def _tips(rng: random.Random, tips: tuple[str, ...]) -> str:
    if rng.random() < 0.5:
        return "\n".join(f"{i}. {tip}" for i, tip in enumerate(tips, 1))
    joined = [tips[0]] + [f"{w} {t[0].lower()}{t[1:]}" for w, t in zip(("Then", "Also,"), tips[1:], strict=False)]
    return " ".join(joined)


def advice(name: str) -> Maker:
    """Three tips; sometimes one more, why, and a goodbye."""
    what, all_tips = TOPICS[name]

    def make(rng: random.Random) -> Example:
        tips = rng.sample(all_tips, 5)
        user = rng.choice(ASKS).format(what=what, kin=rng.choice(words.KIN))
        if rng.random() < 0.4:
            user = f"{pick(rng, 'Hi!|Hello.|Good morning.|Hello there!')} {user}"
        lead = rng.choice(LEADS).format(what=what)
        turns: list[Turn] = [(user, f"{lead}\n{_tips(rng, tuple(tips[:3]))}\n{rng.choice(CLOSES)}")]
        if rng.random() < 0.5:
            ask = pick(rng, "Do you have one more tip?|Anything else?|Thanks. One more idea?|What else could I try?")
            turns.append((ask, f"{pick(rng, 'Yes, one more:|Certainly.|One last idea:')} {tips[3]}"))
        if rng.random() < 0.5:
            ask = pick(rng, "Which one should I start with?|What is the most important point?|Where do I begin?")
            turns.append((ask, f"I would start with this: {tips[0][0].lower()}{tips[0][1:]} The rest can wait a few days."))
        if rng.random() < 0.5:
            turns.append(_goodbye(rng, what))
        return _wrap(rng, f"advice_{name}", turns)

    return make


def _goodbye(rng: random.Random, what: str) -> Turn:
    user = pick(rng, "Thank you!|Thanks, that helps.|Great, thanks a lot.|Perfect, thank you.")
    answer = pick(rng, "You are welcome! Enjoy {what}.|You are welcome. Good luck with {what}!|Happy to help. Have a good day!")
    return user, answer.format(what=what)


def _wrap(rng: random.Random, name: str, turns: list[Turn]) -> Example:
    system = rng.choice(SYSTEMS) if rng.random() < 0.25 else ""
    return Example("dialogue", name, tuple(turns), system)


BOOKINGS = {
    "table": ("a table for {n} at {hour} on {day}", "table", "Would you like to sit inside or on the terrace?", "inside|on the terrace"),
    "haircut": ("a haircut on {day} at {hour}", "haircut", "Is it a short cut or a new style?", "a short cut|a new style"),
    "room": ("a room for {n} nights from {day}", "room", "Would you prefer a quiet room or one with a view?", "a quiet room|one with a view"),
    "dentist": ("an appointment with the dentist on {day}", "appointment", "Is it a check-up, or do you have pain?", "a check-up|some pain"),
    "court": ("a tennis court on {day} at {hour}", "court", "Would you like an indoor or an outdoor court?", "indoor|outdoor"),
    "repair": ("a bicycle repair on {day}", "repair", "Is it the brakes or the gears?", "the brakes|the gears"),
    # Held out.
    "van": ("a van for {n} hours on {day}", "van", "Do you need a small van or a large one?", "a small one|a large one"),
    "tour": ("a guided tour for {n} people on {day}", "tour", "Would you like the old town or the harbour?", "the old town|the harbour"),
}


def booking(name: str) -> Maker:
    """A booking in two to four turns with the details repeated at the end."""
    what, noun, question, options = BOOKINGS[name]

    def make(rng: random.Random) -> Example:
        slots = {"n": str(rng.randint(2, 9)), "hour": f"{rng.randint(9, 20)}:{rng.choice(('00', '15', '30', '45'))}", "day": rng.choice(words.DAYS)}
        wish, person = what.format(**slots), rng.choice(words.NAMES)
        user = pick(rng, "I would like to book {w}.|Can I book {w}, please?|Hello, I need {w}.|Please reserve {w}.").format(w=wish)
        first = pick(rng, "Certainly, {w}. {q}|Of course. I have noted {w}. {q}|With pleasure. {q}").format(w=wish, q=question)
        choice, other = pick(rng, options), rng.choice([d for d in words.DAYS if d != slots["day"]])
        done = f"Thank you, {person}. I have booked {wish} ({choice}). You will get a message the day before."
        turns: list[Turn] = [(user, first), (pick(rng, "{c}, please. My name is {p}.|{c}. The name is {p}.").format(c=choice.capitalize(), p=person), done)]
        if rng.random() < 0.5:
            moved = wish.replace(slots["day"], other)
            turns.append((f"Could we move it to {other}?", f"No problem, {person}. The {noun} is now on {other}: {moved} ({choice})."))
        if rng.random() < 0.4:
            turns.append((pick(rng, "Thanks, goodbye!|Thank you very much."), f"You are welcome, {person}. See you soon!"))
        return _wrap(rng, f"booking_{name}", turns)

    return make


CHOICES = {
    "walk_bus": ("walk or take the bus", "walk", "take the bus", "it is free and you get some air", "it is faster and keeps you dry"),
    "cook_order": ("cook tonight or order something", "cook", "order something", "it is cheaper and you know what is in it", "you are tired and it saves an hour"),
    "train_plane": ("take the train or fly to {city}", "take the train", "fly", "you can read, look out and arrive in the centre", "it saves most of a day"),
    "call_write": ("call my {kin} or write a message", "call", "write a message", "a voice says more than words on a screen", "it can be answered in a quiet moment"),
    "book_film": ("read the book or see the film first", "read the book", "see the film", "your own pictures come first", "it is short, and the book then fills the gaps"),
    "dog_cat": ("get a dog or a cat", "get a dog", "get a cat", "it takes you outside every day", "it is happy to wait at home"),
    "buy_repair": ("buy a new {good} or repair the old one", "repair the old one", "buy a new one", "it costs less and wastes nothing", "the parts are worn and hard to find"),
    # Held out.
    "sea_mountains": ("go to the sea or to the mountains", "go to the sea", "go to the mountains", "you can swim and do nothing all day", "the air is cool and the paths are quiet"),
    "paper_screen": ("take notes on paper or on a screen", "use paper", "use a screen", "writing by hand helps you remember", "you can search them later"),
}


def choice(name: str) -> Maker:
    """A or B, with a reason for each and a recommendation."""
    what, left, right, why_left, why_right = CHOICES[name]

    def make(rng: random.Random) -> Example:
        question = what.format(city=rng.choice(words.CITIES), kin=rng.choice(words.KIN), good=rng.choice(words.GOODS))
        user = pick(rng, "Should I {q}?|I cannot decide: should I {q}?|What do you think, should I {q}?|Help me choose. Should I {q}?").format(q=question)
        a, b, wa, wb = (left, right, why_left, why_right) if rng.random() < 0.5 else (right, left, why_right, why_left)
        answer = pick(rng, "Both can be right. If you {a}, {wa}. If you {b}, {wb}. I would {a} this time.|I would {a}, because {wa}. On the other hand, you could {b}, since {wb}. In the end, trust your mood.").format(a=a, b=b, wa=wa, wb=wb)
        turns: list[Turn] = [(user, answer)]
        if rng.random() < 0.5:
            turns.append((pick(rng, "And if I have little time?|What if I am short of time?|And what would you do on a rainy day?"), f"Then I would {b}, because {wb}."))
        if rng.random() < 0.4:
            turns.append((pick(rng, "Good point, thanks.|That makes sense. Thank you!"), pick(rng, "You are welcome. Enjoy it either way!|Glad to help. Let me know what you chose.")))
        return _wrap(rng, f"choice_{name}", turns)

    return make


SUPPORT = {
    "parcel": ("my parcel with the {good} has not arrived", "the parcel", "ask the carrier where it is and send you an answer by {day}"),
    "broken": ("the {good} I bought arrived broken", "the broken {good}", "send you a new one, which should arrive by {day}"),
    "refund": ("I sent back a {good} and have no refund yet", "the refund", "check the return and pay the amount by {day}"),
    "wrong": ("I ordered a {colour} {good} and got a {other} one", "the wrong colour", "send you the {colour} one by {day}"),
    "password": ("I cannot log in to my account", "the login", "send you a new link, which is valid until {day}"),
    "invoice": ("the invoice for my {good} shows the wrong address", "the invoice", "correct the address and send a new copy by {day}"),
    # Held out.
    "subscription": ("I want to pause my subscription for the {good}", "the subscription", "pause it from {day} and write to you before it starts again"),
    "missing_part": ("a part of the {good} is missing from the box", "the missing part", "put the part in the post, and it should be there by {day}"),
}


def support(name: str) -> Maker:
    """A customer's problem: apology, a question for the number, and what happens next."""
    problem, noun, action = SUPPORT[name]

    def make(rng: random.Random) -> Example:
        colour, other = rng.sample(words.COLOURS, 2)
        slots = {"good": rng.choice(words.GOODS), "colour": colour, "other": other, "day": rng.choice(words.DAYS)}
        user = pick(rng, "Hello, {p}.|Hi, I have a problem: {p}.|Good morning. {p}. What can I do?|{p}. Can you help?").format(p=problem.format(**slots))
        user = user[0].upper() + user[1:]
        number = f"{rng.randint(1000, 9999)}"
        item, act = noun.format(**slots), action.format(**slots)
        first = pick(rng, "I am sorry to hear that. I can help you with {n}. Could you tell me your order number?|Thank you for writing. To look into {n}, I need your order number, please.").format(n=item)
        second = f"Thank you. I have found order {number}. About {item}: we will {act}. Is there anything else?"
        turns: list[Turn] = [(user, first), (pick(rng, "It is {x}.|The number is {x}.|Order {x}.").format(x=number), second)]
        if rng.random() < 0.5:
            turns.append((pick(rng, "No, that is all. Thanks!|That was all, thank you."), pick(rng, "Thank you for your patience, and have a good day!|You are welcome. Have a nice day!")))
        return _wrap(rng, f"support_{name}", turns)

    return make


HELD_OUT = frozenset(f"advice_{name}" for name in HELD_OUT_TOPICS) | {
    "booking_van", "booking_tour", "choice_sea_mountains", "choice_paper_screen", "support_subscription", "support_missing_part",
}


def makers() -> dict[str, Maker]:
    """Every dialogue template by name."""
    table: dict[str, Maker] = {f"advice_{name}": advice(name) for name in TOPICS}
    table.update({f"booking_{name}": booking(name) for name in BOOKINGS})
    table.update({f"choice_{name}": choice(name) for name in CHOICES})
    table.update({f"support_{name}": support(name) for name in SUPPORT})
    return table

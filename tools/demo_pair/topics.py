# ruff: noqa: E501 (sentences and templates stay on one line)
"""Advice topics for dialogue: (gerund phrase, tips). All written for this project."""

from __future__ import annotations

Topic = tuple[str, tuple[str, ...]]

TOPICS: dict[str, Topic] = {
    "basil": ("keeping basil alive on a window sill", (
        "Water it from below, and let the soil dry a little in between.", "Give it at least five hours of light a day.",
        "Pinch off the tips, so that it grows bushy.", "Move it away from cold glass at night.", "Put it in a larger pot, because shops plant it too tightly.",
    )),
    "sleep": ("falling asleep more easily", (
        "Go to bed at the same time every day, also on weekends.", "Put the phone in another room an hour before.",
        "Keep the bedroom cool and dark.", "Avoid coffee after two in the afternoon.", "Read a few pages of something calm.",
    )),
    "exam": ("preparing for an exam", (
        "Make a list of topics and mark the weak ones first.", "Study in blocks of forty minutes with short breaks.",
        "Test yourself instead of reading the notes again.", "Explain one topic a day to somebody else.", "Sleep well on the night before.",
    )),
    "packing": ("packing light for a trip", (
        "Lay everything out and put a third of it back.", "Choose clothes in two colours that go together.",
        "Roll the shirts instead of folding them.", "Wear the heaviest shoes on the journey.", "Use small bottles for soap and shampoo.",
    )),
    "soup": ("making a good vegetable soup", (
        "Fry the onions slowly until they are golden.", "Add the hard vegetables first and the soft ones later.",
        "Use a spoon of tomato paste for depth.", "Salt it in small steps and taste each time.", "Finish with lemon juice and fresh herbs.",
    )),
    "bike": ("looking after a bicycle", (
        "Pump the tyres once a week.", "Clean and oil the chain every month.", "Check that both brakes grip evenly.",
        "Tighten any bolt that rattles.", "Keep it dry, or wipe it after rain.",
    )),
    "budget": ("keeping to a monthly budget", (
        "Write down every expense for one month.", "Move your savings away on the day you are paid.",
        "Set one amount a week for food and pay it in cash.", "Cancel what you have not used for two months.", "Look at the numbers every Sunday.",
    )),
    "running": ("starting to run", (
        "Begin with one minute of running and two of walking.", "Go three times a week, not every day.",
        "Run so slowly that you can still talk.", "Buy shoes that fit, and nothing else.", "Add no more than a tenth each week.",
    )),
    "interview": ("getting ready for a job interview", (
        "Read what the company says about itself.", "Prepare three short stories about your work.",
        "Ask a friend to play the interviewer.", "Choose your clothes the evening before.", "Bring two questions of your own.",
    )),
    "cat": ("helping a new cat settle in", (
        "Give it one quiet room for the first days.", "Let it come to you, and do not pick it up.",
        "Put the food and the litter box far apart.", "Leave a worn shirt where it sleeps.", "Play with it for ten minutes each evening.",
    )),
    "desk": ("setting up a desk at home", (
        "Put the screen at arm's length and at eye height.", "Place the lamp on the side of the hand you do not write with.",
        "Choose a chair that lets your feet rest on the floor.", "Keep only the work of today on the table.", "Stand up once an hour.",
    )),
    "party": ("planning a small birthday party", (
        "Invite people two weeks ahead.", "Pick a dish that can be made the day before.", "Ask each guest to bring one song.",
        "Prepare one game for when talk runs dry.", "Leave the washing up for the morning.",
    )),
    "language": ("learning a new language", (
        "Practise twenty minutes each day instead of two hours on Sunday.", "Learn whole sentences, not single words.",
        "Listen to the radio while you cook.", "Speak from the first week, mistakes included.", "Label things around the house.",
    )),
    "bread": ("baking bread at home", (
        "Weigh the flour and the water.", "Let the dough rest overnight in the fridge.", "Heat the oven for a full half hour.",
        "Bake it in a heavy pot with the lid on.", "Wait an hour before you cut it.",
    )),
    "speech": ("giving a short speech", (
        "Decide on the one thing people should remember.", "Write it out, then reduce it to five words on a card.",
        "Say it aloud three times while walking.", "Look at one friendly face at the start.", "Stop a minute early.",
    )),
    "winter": ("getting a house ready for winter", (
        "Clear the gutters before the first frost.", "Seal the gaps around doors and windows.",
        "Have the heating checked in autumn.", "Drain the garden tap.", "Keep a torch and candles where you can find them.",
    )),
    "photos": ("taking better photos", (
        "Stand with the light behind you or to the side.", "Move closer than feels natural.", "Clean the lens first.",
        "Look at the edges of the picture before you press.", "Take three and keep one.",
    )),
    "focus": ("staying focused at work", (
        "Start with the hardest task.", "Turn off every sound on the phone.", "Answer mail twice a day at fixed times.",
        "Write stray thoughts on a piece of paper.", "Finish by writing down tomorrow's first step.",
    )),
    "tomatoes": ("growing tomatoes on a balcony", (
        "Choose a small variety that likes pots.", "Use a pot of at least ten litres.", "Tie the stem to a stick early on.",
        "Water the soil, never the leaves.", "Break off the side shoots each week.",
    )),
    "moving": ("moving to a new flat", (
        "Start packing the books three weeks before.", "Write the room on every box.", "Pack one bag as if for a weekend.",
        "Photograph the meters on the last day.", "Tell the post office your new address.",
    )),
    # Held out topics.
    "hike": ("going on a first long hike", (
        "Choose a path of less than fifteen kilometres.", "Tell somebody where you are going.", "Carry two litres of water.",
        "Wear shoes that you have already walked in.", "Turn back while you still feel strong.",
    )),
    "guitar": ("practising the guitar every day", (
        "Leave it on a stand, not in the case.", "Play for ten minutes at the same hour.", "Begin slowly, with a metronome.",
        "Repeat the two bars that go wrong.", "End with a song that you love.",
    )),
    "aquarium": ("setting up a first aquarium", (
        "Buy the largest tank that fits.", "Let the water run for three weeks without fish.", "Begin with a few hardy plants.",
        "Feed less than seems right.", "Change a quarter of the water each week.",
    )),
    "allotment": ("sharing a garden with neighbours", (
        "Agree on the watering days in writing.", "Give each person one bed.", "Share the tools, but mark your own.",
        "Meet once a month for an hour.", "Eat the first harvest together.",
    )),
}

HELD_OUT_TOPICS = frozenset({"hike", "guitar", "aquarium", "allotment"})

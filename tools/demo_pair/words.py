# ruff: noqa: E501 (sentences and templates stay on one line)
"""Slot vocabularies shared by the generators."""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.strip().split("|"))


WOMEN = _split(
    "Mara|Elena|Ruth|Ingrid|Salma|Nora|Priya|Joan|Lucia|Hana|Agnes|Tilda|Wren|Yuki|Olga|Beatriz|Carmen|Dora|Edith"
    "|Farah|Greta|Imani|June|Katya|Leila|Mina|Odette|Petra|Rosa|Sofia|Thea|Uma|Vera|Zara|Anna|Clara"
)
MEN = _split(
    "Tomas|Ivan|Peter|Omar|Felix|Hugo|Samuel|Anton|Bruno|Karl|Daniel|Emil|Farid|George|Henrik|Jonas|Kofi|Leo|Marco"
    "|Nils|Oscar|Pablo|Quentin|Rafael|Simon|Theo|Victor|Walter|Yusuf|Adam|Boris|Cyril|David|Martin|Paul|Luis"
)
NAMES = WOMEN + MEN
SURNAMES = _split(
    "Abbott|Berg|Castro|Dahl|Ellis|Fischer|Garcia|Hansen|Ito|Jansen|Keller|Larsen|Moreau|Novak|Okafor|Perez|Quinn"
    "|Rossi|Silva|Tanaka|Ueda|Varga|Weber|Xu|Young|Zeller|Adler|Brandt|Costa|Doyle|Evans|Flynn|Grant|Holm|Ivers"
)
JOBS = _split(
    "baker|carpenter|teacher|fisher|tailor|gardener|clockmaker|nurse|miller|painter|ferry pilot|postal clerk"
    "|shoemaker|beekeeper|librarian|potter|shepherd|blacksmith|weaver|printer|cook|glassblower|bookseller|mason"
)
PLACES = _split(
    "a small harbour town|a village in the hills|an old mill by the river|a mountain valley|a quiet street by the canal"
    "|an island in the north|a farm at the edge of the forest|a town on the coast|a house above the bay"
    "|a village beside the lake|the old quarter of the city|a hamlet on the plain"
)
SEASONS = _split("spring|summer|autumn|winter")
WEATHER = _split(
    "rain was falling on the roofs|a thin fog lay over the fields|the sun was bright and low|snow covered the road"
    "|a warm wind blew from the south|the sky was grey and still|frost had drawn ferns on the windows"
    "|the air smelled of cut grass|thunder rolled far away|the first stars were out"
)
TIMES = _split(
    "one morning|late one evening|on a cold afternoon|before dawn|on the last day of the month|one Sunday"
    "|on market day|in the middle of the night|at the end of the week|on the first day of spring"
)
THINGS = _split(
    "silver watch|brass key|red scarf|wooden flute|blue lantern|old map|tin box|leather notebook|copper bell|glass bead"
    "|ivory comb|paper boat|clay whistle|green umbrella|small compass|gold ring|carved spoon|broken violin"
)
ANIMALS = _split(
    "dog|cat|goat|crow|donkey|fox|hare|owl|heron|horse|hedgehog|goose|lamb|otter|magpie|tortoise"
)
KIN = _split("sister|brother|mother|father|aunt|uncle|grandmother|grandfather|cousin|neighbour")
FOODS = _split(
    "bread|apples|rice|lentils|tomatoes|cheese|carrots|pears|noodles|beans|mushrooms|potatoes|plums|walnuts|eggs|honey"
)
CITIES = _split(
    "Oslo|Lisbon|Turin|Ghent|Krakow|Malmo|Porto|Seville|Bergen|Dublin|Vienna|Prague|Lyon|Hamburg|Naples|Riga|Zurich"
    "|Bristol|Leeds|Cork|Basel|Graz|Bilbao|Tampere|Nantes|Utrecht|Gdansk|Trieste"
)
MONTHS = _split(
    "January|February|March|April|May|June|July|August|September|October|November|December"
)
DAYS = _split("Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday")
COLOURS = _split("red|blue|green|black|white|grey|yellow|brown|purple|orange")
GOODS = _split(
    "desk lamp|office chair|water bottle|rain jacket|wool blanket|coffee grinder|bicycle pump|phone case|steel pan"
    "|travel bag|garden hose|wall clock|reading light|tea kettle|tool box|picture frame|hiking boots|paper shredder"
    "|kitchen scale|camping stove|door mat|cutting board|desk fan|radio"
)
COMPANIES = _split(
    "Northwind Tools|Blue Harbor|Acorn Supply|Lakeside Foods|Summit Print|Maple Works|Orchard Bank|Redstone Parts"
    "|Silver Birch|Harbor Freight Line|Bright Glass|Cedar Motors|Delta Paper|Elm Street Books|Fern Garden Centre"
)

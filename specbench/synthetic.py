"""Seeded prompts of random words: right for timing a prompt length, wrong for acceptance.

Drafts are accepted on text that follows from what stands before it; random words do not, and a
model that answers them may loop. Every prompt made here carries the category ``synthetic``, by
which the reports warn.
"""

from __future__ import annotations

import random
import re

from specbench.errors import WorkloadError
from specbench.prompts import SYNTHETIC, Prompt

BLOCK_WORDS = 512  # words of one cache block of a trace (Mooncake's block holds 512 tokens)

_SPEC = re.compile(r"(?P<words>[0-9]+)x(?P<prompts>[0-9]+)(@(?P<seed>[0-9]+))?")
_MOST_WORDS = 50_000_000  # of a whole set: a few hundred megabytes of text

# Common short English words: nearly every tokenizer spends one token on each.
_WORDS = """
able above across act add after again age ago agree air all along also always among and animal
answer any appear apple area arm army around arrive art ask away baby back bad ball bank base
basic bear beat because become bed before begin behind best better between big bird black blood
blue board boat body book both bottom box boy bread break bright bring brother brown build burn
busy buy call came camp can capital car card care carry case catch cause cell center century
certain chair chance change chart check child choose circle city claim class clean clear climb
clock close cloud coast cold collect color column come common company complete condition contain
control cook cool copy corner cost cotton could count country course cover create crop cross crowd
cry current cut dance danger dark day dead deal death decide deep degree depend desert design
desk develop direct discuss distant divide doctor dog dollar door double down draw dream dress
drink drive drop dry during each ear early earth ease east eat edge effect egg eight either
electric else end enemy energy engine enough enter equal even evening event ever every exact
example except excite exercise expect experience eye face fact fair fall family famous far farm
fast father favor fear feed feel feet fell few field fight figure fill final find fine finger
finish fire first fish fit five flat floor flow flower fly follow food foot force forest form
forward found four free fresh friend from front fruit full fun game garden gas gather gave
general gentle get girl give glad glass gold gone good govern grand grass gray great green ground
group grow guess guide hair half hand happen happy hard hat have head hear heart heat heavy held
help here high hill history hit hold hole home hope horse hot hour house huge human hundred hunt
hurry ice idea imagine inch include indicate industry insect instant iron island job join joy
jump just keep key kind king knew know lady lake land language large last late laugh law lay lead
learn least leave left leg length less letter level lie life lift light like line liquid list
listen little live locate log lone long look lost lot loud love low machine made magnet main
major make man many map mark market master match material matter may mean measure meat meet
melody men metal method middle might mile milk million mind mine minute miss mix modern molecule
moment money month moon more morning most mother motion mount mountain mouth move much multiply
music must name nation natural nature near neck need neighbor never new next night nine noise
noon north nose note nothing notice noun number object observe ocean off offer office often oil
old once one only open operate opposite order organ original other our over own oxygen page paint
pair paper parent part party pass past path pattern pay people perhaps period person phrase pick
picture piece place plain plan plane planet plant play please plural poem point poor populate
port pose position possible post pound power practice prepare present press pretty print problem
process produce product property protect prove provide pull push put question quick quiet quite
race radio rail rain raise ran range rate rather reach read ready real reason receive record red
region remember repeat reply represent require rest result rich ride right ring rise river road
rock roll room root rope rose round row rub rule run safe said sail salt same sand sat save say
scale school science score sea search season seat second section seed seem segment select self
sell send sense sentence separate serve set settle seven several shape share sharp sheet shell
shine ship shoe shop shore short should shoulder shout show side sight sign silent silver similar
simple since sing single sister sit six size skill skin sky sleep slip slow small smell smile snow
soft soil soldier solution solve some son song soon sound south space speak special speech speed
spell spend spoke spot spread spring square stand star start state station stay stead steam steel
step stick still stone stood stop store story straight strange stream street stretch string strong
student study subject substance subtract success sudden sugar suggest suit summer sun supply
support sure surface surprise swim symbol system table tail take talk tall teach team teeth tell
temperature ten term test than thank that their then there these thick thin thing think third
those though thought thousand three through throw thus tie time tiny tire together told tone too
took tool top total touch toward town track trade train travel tree triangle trip trouble truck
true try tube turn twenty two type under unit until usual valley value vary verb very view village
visit voice vowel wait walk wall want war warm wash watch water wave way wear weather week weight
well west wheel when where which while white whole wide wife wild will win wind window wing winter
wire wish with woman wonder wood word work world would write written wrong yard year yellow yes
yet young
""".split()


def words(count: int, seed: str) -> str:
    """``count`` words joined by spaces, the same for the same ``seed`` on every machine.

    >>> words(4, "a") == words(4, "a") != words(4, "b")
    True
    """
    pick = random.Random(seed)
    return " ".join(_WORDS[int(pick.random() * len(_WORDS))] for _ in range(count))


def blocks(count: int, block_ids: list[int], seed: str) -> str:
    """``count`` words in blocks of :data:`BLOCK_WORDS`, equal wherever the block id is equal.

    Words beyond the listed blocks come from ``seed``. Traces that publish lengths and block ids
    instead of text keep their shared prefixes this way (Mooncake's trace format).
    """
    parts = [words(BLOCK_WORDS, f"block {number}") for number in block_ids]
    text = " ".join(parts).split(" ", count)[:count] if parts else []
    rest = count - len(text)
    return " ".join([*text, *([words(rest, seed)] if rest else [])])


def synthetic_prompts(spec: str) -> tuple[Prompt, ...]:
    """Prompts for ``WORDSxPROMPTS`` or ``WORDSxPROMPTS@SEED``, as in ``512x32@7``.

    The length counts words. What a model's tokenizer makes of them stands in each request's
    usage; for large vocabularies it is close to one token a word.

    Raises:
        WorkloadError: ``spec`` has another form, is empty or is too large.
    """
    form = _SPEC.fullmatch(spec)
    if form is None:
        raise WorkloadError(
            f"synthetic:{spec} is not understood.",
            expected="synthetic:WORDSxPROMPTS or synthetic:WORDSxPROMPTS@SEED, as 512x32@7.",
        )
    length, count, seed = int(form["words"]), int(form["prompts"]), int(form["seed"] or 0)
    if not length or not count or length * count > _MOST_WORDS:
        raise WorkloadError(
            f"synthetic:{spec} asks for {length} words in {count} prompts.",
            expected=f"At least one of each, and at most {_MOST_WORDS} words together.",
        )
    return tuple(
        Prompt(
            prompt_id=f"words-{number:05d}",
            category=SYNTHETIC,
            turns=(words(length, f"{seed} {number}"),),
            source=f"random words, seed {seed}",
        )
        for number in range(count)
    )

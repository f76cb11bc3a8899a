"""Training text: the same every time, and free of what is held out."""

import json
import random

import pytest

from tools.demo_pair import corpus, sources
from tools.demo_pair.example import CATEGORIES, Example

CHARACTERS = 60_000


def _names(examples: list[Example]) -> set[tuple[str, str]]:
    return {(ex.category, name) for ex in examples for name in ex.template.split("+")}


def test_training_text_is_the_same_for_one_seed() -> None:
    first = corpus.training_examples(CHARACTERS, seed=3, with_documents=False)
    assert first == corpus.training_examples(CHARACTERS, seed=3, with_documents=False)
    assert first != corpus.training_examples(CHARACTERS, seed=4, with_documents=False)


def test_held_out_templates_are_not_trained_on() -> None:
    examples = corpus.training_examples(400_000, seed=3, with_documents=False)
    held = {(c, name) for c in CATEGORIES for name in corpus.templates(c).held_out}
    seen = {(c, name) for c in CATEGORIES for name in corpus.templates(c).seen}
    assert _names(examples) == seen
    assert not seen & held


@pytest.mark.parametrize("category", CATEGORIES)
def test_prompts_of_held_out_templates_do_not_occur_in_training(category: str) -> None:
    examples = corpus.training_examples(400_000, seed=3, with_documents=False)
    asked = {user for ex in examples for user, _ in ex.turns}
    stream = corpus.generated(category, random.Random(1), held_out=True)
    assert not asked & {next(stream).turns[0][0] for _ in range(200)}


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_template_fills_its_slots(category: str) -> None:
    source = corpus.templates(category)
    rng = random.Random(5)
    for name, make in {**source.seen, **source.held_out}.items():
        for _ in range(20):
            example = make(rng)
            assert example.category == category
            assert all(user and answer for user, answer in example.turns), name
            if category in ("prose", "dialogue", "arithmetic"):
                assert "{" not in example.render(), name


def test_extraction_answers_are_json_of_facts_in_the_text() -> None:
    stream = corpus.generated("extraction", random.Random(2))
    for _ in range(300):
        ((user, answer),) = next(stream).turns
        for key, value in json.loads(answer).items():
            assert key in user
            assert key == "mood" or str(value) in user


def test_worked_sums_are_right() -> None:
    stream = corpus.generated("arithmetic", random.Random(2))
    for _ in range(300):
        ((_, answer),) = next(stream).turns
        for left, right in _equations(answer):
            total = left[0]
            for sign, number in zip(left[1::2], left[2::2], strict=True):
                total = _apply(total, sign, number)
            assert int(total) == right, answer


def _equations(answer: str) -> list[tuple[list[str], int]]:
    found = []
    for part in answer.replace(",", " ").replace("\n", " ").split(". "):
        words = [w.rstrip(".") for w in part.split()]
        if "=" in words:
            at = words.index("=")
            start = at - 1
            while start >= 2 and words[start - 1] in "+-*/":
                start -= 2
            found.append((words[start:at], int(words[at + 1])))
    return found


def _apply(total: str, sign: str, number: str) -> str:
    a, b = int(total), int(number)
    return str({"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[sign])


def test_generated_python_compiles() -> None:
    for held_out in (False, True):
        stream = corpus.generated("code", random.Random(2), held_out)
        for _ in range(200):
            ((_, answer),) = next(stream).turns
            code = answer.split("```python\n")[1].removesuffix("\n```")
            compile(code, "answer", "exec")


def test_a_book_is_held_out_whole() -> None:
    held = sources.Document("novel", "Persuasion", "public domain", "")
    assert held.held_out
    assert not sources.Document("novel", "Emma", "public domain", "").held_out


def test_passages_are_cut_at_a_sentence() -> None:
    opening = "It was a long day for all of them, and it rained from six to noon. "
    rest = "Nobody spoke. " * 12
    assert sources.split_passage(opening + rest.strip()) == (opening.strip(), rest.strip())
    assert sources.split_passage("Too short.") is None

from __future__ import annotations

from typing import Any

import pytest

from specbench.errors import WorkloadError
from specbench.prompts.prompt import Prompt
from specbench.request import Message


def test_a_conversation_keeps_its_parts() -> None:
    prompt = Prompt(
        prompt_id="p/1",
        category="prose",
        turns=("one", "two"),
        history=(Message(role="assistant", content="hi"),),
    )
    assert prompt.turns == ("one", "two")
    assert prompt.held_out is None
    assert prompt.max_tokens is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"prompt_id": ""}, "id"),
        ({"prompt_id": "a#1"}, "'a#1'"),
        ({"prompt_id": "a\nb"}, "id"),
        ({"category": ""}, "category"),
        ({"category": "all"}, "whole set"),
        ({"turns": ()}, "empty turn"),
        ({"turns": ("one", "  ")}, "empty turn"),
        ({"raw": True, "system": "short"}, "plain text"),
        ({"raw": True, "turns": ("a", "b")}, "plain text"),
        ({"max_tokens": 0}, "0 tokens"),
        ({"turns": ("half \ud83d",)}, "surrogate"),
        ({"system": "\udc00"}, "surrogate"),
    ],
)
def test_what_cannot_be_sent_is_refused(wrong: dict[str, Any], named: str) -> None:
    right: dict[str, Any] = {"prompt_id": "a", "category": "prose", "turns": ("hello",)}
    with pytest.raises(WorkloadError, match=named):
        Prompt(**{**right, **wrong})

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from specbench.errors import WorkloadError
from specbench.prompts.openai import openai_prompt
from specbench.prompts.prompt import Prompt
from specbench.request import Message


def read(values: dict[str, Any]) -> tuple[Prompt, Counter[str]]:
    tally: Counter[str] = Counter()
    return openai_prompt(values, "line-1", tally), tally


def said(*parts: str) -> list[dict[str, str]]:
    roles = {"s": "system", "d": "developer", "u": "user", "a": "assistant"}
    return [{"role": roles[part[0]], "content": part[2:]} for part in parts]


def test_recorded_replies_before_the_last_turn_are_sent_as_they_stand() -> None:
    prompt, tally = read({"messages": said("s:be brief", "u:one", "a:two", "u:three")})
    assert prompt.system == "be brief"
    assert prompt.history == (
        Message(role="user", content="one"),
        Message(role="assistant", content="two"),
    )
    assert prompt.turns == ("three",)
    assert (prompt.prompt_id, prompt.category, prompt.max_tokens) == ("line-1", "openai", None)
    assert not tally


def test_turns_without_replies_between_them_are_a_conversation() -> None:
    prompt, _ = read({"messages": said("d:be brief", "u:one", "u:two")})
    assert prompt.system == "be brief"
    assert prompt.turns == ("one", "two")


def test_a_reply_at_the_end_is_not_sent_and_counted() -> None:
    prompt, tally = read({"messages": said("u:one", "a:two")})
    assert prompt.turns == ("one",)
    assert tally == {"replies at the end of messages were not sent": 1}


def test_a_batch_line_gives_id_category_limit_and_leaves_settings_to_the_run() -> None:
    body = {"messages": said("u:one"), "max_tokens": 9, "temperature": 1, "metadata": {}}
    line = {"custom_id": "x#1", "method": "POST", "body": body, "category": "sea"}
    prompt, tally = read({**line, "url": "/v1/chat/completions"})
    assert (prompt.prompt_id, prompt.category, prompt.max_tokens) == ("x_1", "sea", 9)
    assert tally == {"records set temperature, where the run's own value holds": 1}


def test_a_completion_is_plain_text() -> None:
    prompt, _ = read({"prompt": "Once", "metadata": {"category": "tale"}, "max_tokens": None})
    assert prompt.raw
    assert (prompt.turns, prompt.category, prompt.max_tokens) == (("Once",), "tale", None)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"messages": []}, "empty"),
        ({"messages": said("s:only")}, "without a user"),
        ({"messages": said("u:x"), "prompt": "x"}, "exactly one"),
        ({"model": "x"}, "exactly one"),
        ({"messages": said("u:x"), "n": 4}, "several choices"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "'tool'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "not text"),
        ({"messages": [{"role": "user", "content": None}]}, "no text"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "tool_calls"),
        ({"messages": ["x"]}, "no object"),
        ({"body": {"messages": said("u:x"), "tools": []}}, "'tools'"),
        ({"body": {"input": "x"}, "url": "/v1/embeddings"}, "embeddings"),
        ({"body": 5}, "body"),
        ({"body": {}, "model": "x"}, "'model'"),
        ({"messages": said("u:x"), "metadata": 3}, "metadata"),
        ({"messages": said("u:x"), "category": 3}, "category"),
    ],
)
def test_what_would_change_the_prompt_is_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(WorkloadError, match=named):
        read(values)

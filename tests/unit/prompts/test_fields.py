from __future__ import annotations

import pytest

from specbench.errors import WorkloadError
from specbench.prompts.fields import check_keys, identity, integer, number, text, texts


def test_values_of_the_right_type_are_given_back() -> None:
    values = {"t": "a", "l": ["a", "b"], "i": 3, "f": 0.5, "null": None}
    assert text(values, "t") == "a"
    assert text(values, "null", default="x") == text(values, "none", default="x") == "x"
    assert texts(values, "l") == ("a", "b")
    assert integer(values, "i") == 3
    assert number(values, "i") == 3.0
    assert number(values, "f") == 0.5


def test_a_wrong_type_names_the_key_and_what_it_is() -> None:
    values = {"t": 1, "l": ["a", 2], "i": True, "f": "2"}
    with pytest.raises(WorkloadError, match=r"t is a int. A text"):
        text(values, "t")
    with pytest.raises(WorkloadError, match="gone is missing"):
        text(values, "gone")
    with pytest.raises(WorkloadError, match="l is a list that holds something else"):
        texts(values, "l")
    with pytest.raises(WorkloadError, match="i is a bool"):
        integer(values, "i")
    with pytest.raises(WorkloadError, match="f is a str"):
        number(values, "f")
    for value in (float("inf"), -(10**400), float("nan")):
        with pytest.raises(WorkloadError, match="f is out of range"):
            number({"f": value}, "f")


def test_an_unknown_key_is_answered_with_a_near_one() -> None:
    with pytest.raises(WorkloadError, match="Did you mean 'turns'"):
        check_keys({"turn": 1}, {"turns", "id"}, "a prompt")
    check_keys({"id": 1}, {"turns", "id"}, "a prompt")


def test_ids_are_texts_without_the_mark_of_turns() -> None:
    assert identity({"id": 7}, "id", "x") == "7"
    assert identity({"id": "a#b"}, "id", "x") == "a_b"
    assert identity({"id": None}, "id", "x") == "x"
    with pytest.raises(WorkloadError, match="no id"):
        identity({"id": True}, "id", "x")

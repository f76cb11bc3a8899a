from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specbench.server.fields import LONGEST_TOLD, Fields, RefusedError, is_ids


def test_fields_are_taken_by_type_and_null_is_absent() -> None:
    fields = Fields(
        {"i": 1, "n": 2, "f": True, "t": "x", "s": "a", "l": ["b"], "ids": [1], "z": None}
    )
    assert fields.integer("i") == 1
    assert fields.number("n", 0.5) == 2.0
    assert fields.flag("f") is True
    assert fields.text("t") == "x"
    assert (fields.texts("s"), fields.texts("l")) == (("a",), ("b",))
    assert fields.ids("ids") == (1,)
    assert fields.integer("z") is None
    assert fields.number("absent", 0.5) == 0.5
    assert fields.flag("absent") is False
    assert fields.texts("absent") == ()
    fields.done()


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda f: f.integer("x"), 1.0),
        (lambda f: f.integer("x"), True),
        (lambda f: f.integer("x"), "1"),
        (lambda f: f.integer("x"), 2**63),
        (lambda f: f.number("x", 0.0), "1"),
        (lambda f: f.number("x", 0.0), 10**400),
        (lambda f: f.number("x", 0.0), float("inf")),
        (lambda f: f.number("x", 0.0), False),
        (lambda f: f.flag("x"), 1),
        (lambda f: f.text("x"), 1),
        (lambda f: f.texts("x"), ["a", 1]),
        (lambda f: f.texts("x"), ""),
        (lambda f: f.ids("x"), [1, -1]),
        (lambda f: f.ids("x"), [True]),
        (lambda f: f.ids("x"), 3),
        (lambda f: f.only("x", 1), 2),
        (lambda f: f.only("x", False), 0),
    ],
)
def test_a_wrong_type_names_the_field(read: Callable[[Fields], Any], value: Any) -> None:
    with pytest.raises(RefusedError, match=r"p\.x is ") as refused:
        read(Fields({"x": value}, "p."))
    assert refused.value.param == "x"
    assert refused.value.status == 400


def test_a_feature_that_is_not_here_may_be_switched_off() -> None:
    fields = Fields({"n": 1, "penalty": 0.0})
    fields.only("n", 1)
    fields.only("penalty", 0, 0.0)
    fields.only("absent", 1)
    fields.done()


def test_unknown_fields_are_named_with_the_nearest_known() -> None:
    fields = Fields({"max_token": 4, "qqq": 1}, "p.")
    fields.integer("max_tokens")
    with pytest.raises(RefusedError) as refused:
        fields.done()
    assert "p.max_token (did you mean max_tokens?)" in str(refused.value)
    assert "p.qqq." in str(refused.value)


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_a_body_must_be_an_object(body: Any) -> None:
    with pytest.raises(RefusedError, match="no JSON object"):
        Fields(body)


def test_ids() -> None:
    assert is_ids([0, 5])
    assert not any(is_ids(v) for v in ([], [1.0], [True], [-1], "12", None))


@pytest.mark.parametrize("value", [[], 0, "", False])
def test_a_table_of_another_type_is_not_taken_for_none(value: object) -> None:
    assert Fields({}).table("t").flag("f") is False
    with pytest.raises(RefusedError, match="t is no JSON object"):
        Fields({"t": value}).table("t")


@pytest.mark.parametrize("stops", [["a"] * 65, ["a" * 1025]])
def test_stop_strings_beyond_the_bounds_are_refused(stops: list[str]) -> None:
    within = Fields({"stop": ["a"] * 63 + ["a" * 1024]}).sampling(max_tokens=1, seed="seed")
    assert len(within.stop) == 64
    with pytest.raises(RefusedError, match="at most 64 strings of 1024 characters") as refused:
        Fields({"stop": stops}).sampling(max_tokens=1, seed="seed")
    assert refused.value.param == "stop"


def test_many_unknown_fields_are_counted_not_compared_one_by_one() -> None:
    fields = Fields({f"{'x' * 500}{i}": 0 for i in range(3000)})
    with pytest.raises(RefusedError) as refused:
        fields.done()
    assert "and 2992 more" in str(refused.value)
    assert len(str(refused.value)) < 1000
    assert len(refused.value.param or "") == LONGEST_TOLD

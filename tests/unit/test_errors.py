"""Every error says what, expected, next, and maps to an exit code."""

from __future__ import annotations

import pytest

from specbench import errors


def test_the_message_reads_what_expected_todo() -> None:
    error = errors.ConfigError("It is 3.", expected="4 was expected.", todo="Set it to 4.")
    assert str(error) == "It is 3. 4 was expected. Set it to 4."
    assert (error.what, error.expected, error.todo) == (
        "It is 3.",
        "4 was expected.",
        "Set it to 4.",
    )


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ConfigError, 2),
        (errors.WorkloadError, 2),
        (errors.CheckpointError, 2),
        (errors.UnsupportedError, 2),
        (errors.OutputError, 2),
        (errors.BackendError, 3),
        (errors.UnreachableError, 3),
        (errors.EngineError, 3),
    ],
)
def test_exit_codes(kind: type[errors.SpecbenchError], code: int) -> None:
    assert kind("x").exit_code == code


def test_the_tree_in_the_docstring_names_every_error() -> None:
    kinds = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.SpecbenchError)
    }
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in kinds)

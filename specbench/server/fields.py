"""A request body read field by field: wrong types and unknown names are refused, never ignored."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping
from typing import Any

from specbench.errors import UsageError
from specbench.request import SamplingParams

MOST_STOPS, LONGEST_STOP = 64, 1024  # stop strings of a request, characters of one
# unknown fields in a message, characters of one: each is compared with every known name
MOST_TOLD, LONGEST_TOLD = 8, 64


class RefusedError(UsageError):
    """A request that the server does not take.

    ``status`` is the HTTP status, ``param`` the field at fault, ``code`` OpenAI's error code.
    """

    def __init__(
        self,
        what: str,
        *,
        todo: str = "",
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(what, todo=todo)
        self.status = status
        self.param = param
        self.code = code


class Fields:
    """Take each field that is understood, then call ``done``; null counts as absent.

    Args:
        values: a parsed JSON object.
        where: prefix for messages, such as ``sampling_params.``.
    """

    def __init__(self, values: Any, where: str = "") -> None:
        if not isinstance(values, Mapping):
            place = where.rstrip(".") or "The request body"
            raise RefusedError(f"{place} is no JSON object.", param=where.rstrip(".") or None)
        self._left = dict(values)
        self._where = where
        self._known: list[str] = []

    def take(self, name: str) -> Any:
        """The raw value; None when absent."""
        self._known.append(name)
        return self._left.pop(name, None)

    def table(self, name: str) -> Fields:
        """The fields of an object; those of an empty one when absent."""
        value = self.take(name)
        return Fields({} if value is None else value, f"{name}.")

    def integer(self, name: str) -> int | None:
        """An integer of at most 63 bits; None when absent."""
        value = self.take(name)
        if value is not None and (type(value) is not int or abs(value) >= 2**63):
            raise self.wrong(name, value, "an integer of at most 63 bits")
        return value

    def number(self, name: str, default: float) -> float:
        """A finite number, as float."""
        value = self.take(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not -1e300 < value < 1e300:
            raise self.wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false when absent."""
        value = self.take(name)
        if value is not None and type(value) is not bool:
            raise self.wrong(name, value, "true or false")
        return bool(value)

    def text(self, name: str) -> str | None:
        """A string; None when absent."""
        value = self.take(name)
        if value is not None and type(value) is not str:
            raise self.wrong(name, value, "a string")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or a list of strings; empty when absent."""
        value = self.take(name)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
            raise self.wrong(name, value, "a string or a list of strings, none of them empty")
        return tuple(values)

    def _stops(self) -> tuple[str, ...]:
        """Stop strings: each is looked for after every token, so there are bounds."""
        stops = self.texts("stop")
        if len(stops) > MOST_STOPS or any(len(stop) > LONGEST_STOP for stop in stops):
            raise self.wrong(
                "stop", list(stops), f"at most {MOST_STOPS} strings of {LONGEST_STOP} characters"
            )
        return stops

    def ids(self, name: str) -> tuple[int, ...]:
        """A list of token ids; empty when absent."""
        value = self.take(name)
        if value is None or value == []:
            return ()
        if not is_ids(value):
            raise self.wrong(name, value, "a list of token ids")
        return tuple(value)

    def sampling(self, *, max_tokens: int, seed: str) -> SamplingParams:
        """The sampling fields that every route has; without a temperature decoding is greedy.

        Args:
            max_tokens: read by the caller, whose routes name it differently.
            seed: the field's name, which differs, too.

        Raises:
            RefusedError: a field is of the wrong type.
            ConfigError: a value is outside its range.
        """
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.number("temperature", 0.0),
            top_p=self.number("top_p", 1.0),
            top_k=max(0, self.integer("top_k") or 0),  # -1 also means off
            min_p=self.number("min_p", 0.0),
            seed=self.integer(seed) or 0,
            stop=self._stops(),
            stop_token_ids=self.ids("stop_token_ids"),
            ignore_eos=self.flag("ignore_eos"),
        )

    def only(self, name: str, *allowed: Any) -> None:
        """A field of the API whose feature is not here: absent or one of ``allowed``."""
        value = self.take(name)
        if value is not None and not any(value == a and type(value) is type(a) for a in allowed):
            fine = " or ".join(repr(a) for a in allowed)
            raise self.wrong(name, value, f"{fine}, or left out: this server has nothing else")

    def wrong(self, name: str, value: Any, expected: str) -> RefusedError:
        """The refusal of ``value``."""
        return RefusedError(
            f"{self._where}{name} is {value!r:.80}; it must be {expected}.", param=name
        )

    def done(self) -> None:
        """Refuse what nobody took.

        Raises:
            RefusedError: names the first unknown fields, with "did you mean".
        """
        if not self._left:
            return
        names = [name[:LONGEST_TOLD] for name in itertools.islice(self._left, MOST_TOLD)]
        said = ", ".join(self._where + name + self._hint(name) for name in names)
        more = len(self._left) - len(names)
        raise RefusedError(
            f"Unknown field: {said}{f' and {more} more' if more else ''}.",
            todo="Nothing is ignored here; leave it out.",
            param=names[0],
        )

    def _hint(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._known, n=1)
        return f" (did you mean {near[0]}?)" if near else ""


def is_ids(value: Any) -> bool:
    """True for a non-empty list of token ids.

    >>> is_ids([1, 2]), is_ids([]), is_ids([True]), is_ids([-1])
    (True, False, False, False)
    """
    return isinstance(value, list) and bool(value) and all(type(v) is int and v >= 0 for v in value)

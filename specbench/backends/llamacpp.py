"""llama.cpp's verify steps of one request, from the running totals in its stream.

With ``timings_per_token`` each event tells the tokens so far and the drafts proposed and accepted
so far. Totals move once a step, when its first token is sent. A step that drafted nothing, as with
one token of room left, moves none: it counts as one that accepted none, so that prefill and steps
explain every token; llama.cpp's own counter of drafts leaves it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from specbench.backends.speculation import count_in
from specbench.config import MOST_STEPS


class DraftSteps:
    """Feed the ``timings`` of each event in turn; ``histogram`` then holds what they amount to.

    Tokens that make no whole character are held back, and with them, it may be, a step of which
    only the sum with the next one is seen. Such a request has no histogram, rather than a wrong
    one: a move counts as one step when it came with the step's first token, or drafted no more
    than steps that did.
    """

    def __init__(self) -> None:
        self._tokens = self._drafted = self._accepted = 0
        self._owed = 1  # tokens that the step seen last has still to deliver; the prefill's one
        self._steps: Counter[int] = Counter()
        self._undrafted = self._deepest = 0
        self._unsure: list[int] = []
        self._lost = False

    def feed(self, timings: Mapping[str, Any]) -> int | None:
        """New tokens since the event before; None where this one does not tell.

        Raises:
            BackendError: a total that is no count.
        """
        tokens = count_in(timings, "predicted_n")
        if tokens is None:
            return None
        new, self._tokens = tokens - self._tokens, tokens
        drafted = (count_in(timings, "draft_n") or 0) - self._drafted  # absent until the first
        accepted = (count_in(timings, "draft_n_accepted") or 0) - self._accepted
        if drafted or accepted:
            self._step(drafted, accepted, new - self._owed)
        else:
            self._undrafted += max(0, new - self._owed)
            self._owed = max(0, self._owed - new)
        return max(new, 0)

    def _step(self, drafted: int, accepted: int, seen: int) -> None:
        """Totals moved, in an event that brings ``seen`` tokens beyond the step before."""
        self._drafted += drafted
        self._accepted += accepted
        if not 0 <= accepted <= min(drafted, MOST_STEPS) or not 1 <= seen <= accepted + 1:
            self._lost = True
            return
        self._steps[accepted] += 1
        self._owed = accepted + 1 - seen
        if seen == 1:
            self._deepest = max(self._deepest, drafted)
        else:
            self._unsure.append(drafted)

    def histogram(self, drafted: int | None, accepted: int | None) -> tuple[int, ...] | None:
        """Steps by accepted drafts; None where they cannot be told apart.

        ``drafted`` and ``accepted`` are the server's totals in the end, which the steps must give.
        """
        sums = (self._drafted, self._accepted)
        if self._lost or sums != (drafted or 0, accepted or 0):
            return None
        if max(self._unsure, default=0) > self._deepest:
            return None
        steps = self._steps + Counter({0: self._undrafted})
        return tuple(steps[level] for level in range(max(steps, default=0) + 1))

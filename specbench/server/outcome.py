"""What one request has produced so far, as the routes report it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable
from dataclasses import asdict
from typing import Any

from specbench.backends.base import Event, Finished
from specbench.columns import STEP_FIELDS
from specbench.config import SpecConfig
from specbench.errors import BackendError
from specbench.trace import Chunk, Finish, StepTrace


class Outcome:
    """Fills with events; ``finished`` must have come before the totals are read."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.tokens = 0
        self.steps: list[StepTrace] = []
        self._finished: Finished | None = None

    def add(self, event: Event) -> None:
        """File one event."""
        if isinstance(event, Chunk):
            self._pieces.append(event.text)
            self.tokens += event.tokens or 0
        elif isinstance(event, StepTrace):
            self.steps.append(event)
        else:
            self._finished = event

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def finished(self) -> Finished:
        """The last event.

        Raises:
            BackendError: the stream ended without it.
        """
        if self._finished is None:
            raise BackendError("The engine ended the request without saying why.")
        return self._finished

    @property
    def finish_reason(self) -> str:
        """OpenAI's and SGLang's common words for how it ended.

        Raises:
            BackendError: it was not finished but broken off.
        """
        finish = self.finished.finish
        if finish not in (Finish.STOP, Finish.LENGTH):
            raise BackendError(f"The engine ended the request with {finish!s}.")
        return finish.value

    @property
    def completion_tokens(self) -> int:
        """Tokens that the user got: as the backend counts, or by its chunks."""
        counted = self.finished.usage.completion_tokens
        return self.tokens if counted is None else counted

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage; a count that the backend does not give is null."""
        prompt = self.finished.usage.prompt_tokens
        done = self.completion_tokens
        found = {
            "prompt_tokens": prompt,
            "completion_tokens": done,
            "total_tokens": None if prompt is None else prompt + done,
        }
        cached = self.finished.usage.cached_tokens
        return found if cached is None else found | {"prompt_tokens_details": _cached(cached)}

    def extension(self) -> dict[str, Any]:
        """The ``specbench`` field that ``return_steps`` asks for: steps, ids and counts."""
        finished = self.finished
        ids = finished.output_ids
        # Read by name: dataclasses.asdict copies deeply, ten times as long, while the engine waits.
        return {
            "steps": [{name: getattr(step, name) for name in STEP_FIELDS} for step in self.steps],
            "output_ids": None if ids is None else list(ids),
            "usage": asdict(finished.usage),
        }

    def meta_info(self, spec: SpecConfig) -> dict[str, Any]:
        """SGLang's counts and ratios by SGLang's formulas (definitions b.2; its names of 2026).

        V = verify steps. ``spec_accept_length`` = completion_tokens ÷ V, the token from prefill
        counted and after trimming; ``spec_accept_rate`` = Σa ÷ (V · (num_draft_tokens − 1)), a
        fixed width per step; the histogram ends at the largest a. As in SGLang the fields are
        absent without speculation and while V is 0.
        """
        meta = {
            "prompt_tokens": self.finished.usage.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }
        cached = self.finished.usage.cached_tokens
        meta |= {} if cached is None else _cached(cached)
        verified = len(self.steps)
        if spec.is_baseline or not verified:
            return meta
        accepted = sum(step.accepted for step in self.steps)
        proposed = verified * (spec.num_draft_tokens - 1)
        count = Counter(step.accepted for step in self.steps)
        return {
            **meta,
            "spec_verify_ct": verified,
            "spec_accept_length": self.completion_tokens / verified,
            "spec_accept_rate": accepted / proposed,
            "spec_num_correct_drafts": accepted,
            "spec_num_proposed_drafts": proposed,
            "spec_correct_drafts_histogram": [count[a] for a in range(max(count) + 1)],
        }


async def collect(events: AsyncIterable[Event]) -> Outcome:
    """Read a stream to its end."""
    outcome = Outcome()
    async for item in events:
        outcome.add(item)
    return outcome


def _cached(tokens: int) -> dict[str, int]:
    """Both APIs name it alike; neither names it where no prefix cache is looked at."""
    return {"cached_tokens": tokens}

"""Prompts for parity probes: few, short, of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specbench.engine.pair import ModelPair
from specbench.errors import WorkloadError
from specbench.request import Request, SamplingParams

MOST_PROMPTS = 3
MOST_TOKENS = 48
LEAST_TOKENS = 8
REPLY = 20
ROOM = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Prompts as token ids, by request id; all replies are greedy and ``REPLY`` tokens long."""

    pair: ModelPair
    prompts: dict[str, tuple[int, ...]]

    @property
    def max_len(self) -> int:
        """Room for the longest prompt, its reply, a following prompt, and drafts past the cut."""
        return 2 * max(map(len, self.prompts.values())) + 2 * REPLY + ROOM

    def requests(self, max_tokens: int = REPLY) -> list[Request]:
        """A request per prompt, which only its length ends."""
        return [asked(name, ids, max_tokens) for name, ids in self.prompts.items()]

    @property
    def told(self) -> str:
        """How much text this is."""
        lengths = [len(ids) for ids in self.prompts.values()]
        return f"{len(lengths)} prompts of {min(lengths)} to {max(lengths)} tokens"


def asked(name: str, ids: Sequence[int], max_tokens: int = REPLY) -> Request:
    """A greedy request by token ids."""
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return Request(request_id=name, prompt_ids=tuple(ids), sampling=sampling)


def parity_texts(pair: ModelPair, requests: Sequence[Request]) -> Texts:
    """The first prompts with enough tokens, cut to lengths that differ.

    Raises:
        WorkloadError: no prompt has ``LEAST_TOKENS`` tokens.
    """
    found: dict[str, tuple[int, ...]] = {}
    for request in requests:
        ids = pair.codec.prompt_ids(request)
        if len(ids) >= LEAST_TOKENS:
            found[request.request_id] = ids[: MOST_TOKENS - 9 * len(found)]
        if len(found) == MOST_PROMPTS:
            break
    if not found:
        raise WorkloadError(
            "no prompt is long enough for the parity probes.",
            expected=f"At least one of {LEAST_TOKENS} tokens.",
        )
    return Texts(pair=pair, prompts=found)

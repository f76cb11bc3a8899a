"""One prompt: a conversation to be held, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.errors import WorkloadError
from specbench.request import Message

SYNTHETIC = "synthetic"  # the category that marks prompts made of random words


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One conversation to be held: the user's turns, and what was said before the first.

    ``turns`` are user turns; the replies between them come from the model under test.
    ``history`` holds recorded messages that precede the first turn. ``raw`` sends the only turn
    as plain text, without a chat template. ``due_s`` is the arrival in a timed trace, in seconds
    from its start; ``max_tokens`` the longest reply that the set asks for, None when it says
    nothing. ``held_out`` is True when the shipped pair's training did not see the text.

    Raises:
        WorkloadError: a field is empty, or text that is not valid Unicode.
    """

    prompt_id: str
    category: str
    turns: tuple[str, ...]
    system: str = ""
    history: tuple[Message, ...] = ()
    source: str = ""
    held_out: bool | None = None
    raw: bool = False
    due_s: float | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.prompt_id or "#" in self.prompt_id or not self.prompt_id.isprintable():
            raise WorkloadError(
                f"the id {self.prompt_id!r} cannot be used.",
                expected="A printable text without '#', which marks turns.",
            )
        if not self.category or self.category == "all" or not self.category.isprintable():
            raise WorkloadError(
                f"the category {self.category!r} cannot be used.",
                expected="A printable name; 'all' stands for the whole set.",
            )
        if not self.turns or not all(turn.strip() for turn in self.turns):
            raise WorkloadError(f"prompt {self.prompt_id!r} has an empty turn, or none.")
        if self.raw and (len(self.turns) > 1 or self.system or self.history):
            raise WorkloadError(
                f"prompt {self.prompt_id!r} is plain text with several turns or a system text.",
                expected="Plain text is one turn.",
            )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise WorkloadError(
                f"prompt {self.prompt_id!r} asks for {self.max_tokens} tokens.",
                expected="At least 1.",
            )
        for text in (*self.turns, self.system, *(said.content for said in self.history)):
            _check_unicode(self.prompt_id, text)


def _check_unicode(prompt_id: str, text: str) -> None:
    """Refuse half of a surrogate pair: JSON can spell one, but no server and tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise WorkloadError(
            f"prompt {prompt_id!r} holds half of a surrogate pair.", expected="Valid Unicode."
        ) from None

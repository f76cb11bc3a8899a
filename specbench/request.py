"""What we ask: sampling parameters, one request, and how a conversation goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specbench.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen and when a request ends.

    ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 switch a filter off.

    Raises:
        ConfigError: a value is outside its range, or not a number.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int = 96
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("temperature", self.temperature, 0.0, 100.0),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name}={value} is outside [{low:g}, {high:g}].")
        if self.top_p == 0.0:
            raise ConfigError("top_p=0 leaves no token.", expected="In (0, 1]; 1 switches it off.")
        if self.top_k < 0:
            raise ConfigError(f"top_k={self.top_k} is negative.", expected="0 switches it off.")
        if self.max_tokens < 1:
            raise ConfigError(f"max_tokens={self.max_tokens}.", expected="At least 1 is needed.")

    @property
    def greedy(self) -> bool:
        """True when every token is the argmax."""
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation; ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: exactly one of ``messages``, ``prompt`` and ``prompt_ids`` is given.

    ``messages`` goes through the chat template, ``prompt`` is raw text, ``prompt_ids`` are
    token ids. ``follow_ups`` are the user turns that come after this one's reply, in order.
    """

    request_id: str
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    sampling: SamplingParams = SamplingParams()
    workload: str = ""
    category: str = ""
    prompt_id: str = ""
    turn: int = 0
    follow_ups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = [bool(self.messages), self.prompt is not None, self.prompt_ids is not None]
        if sum(given) != 1:
            raise ConfigError(
                f"request {self.request_id} gives {sum(given)} of messages, prompt, prompt_ids.",
                expected="Exactly one of them is needed.",
            )

    def next_turn(self, reply: str) -> Request | None:
        """The request of the next user turn after ``reply``; None when the talk is over."""
        if not self.follow_ups:
            return None
        said = Message(role="assistant", content=reply)
        asked = Message(role="user", content=self.follow_ups[0])
        stem = self.request_id.rsplit("#", 1)[0]
        return replace(
            self,
            request_id=f"{stem}#{self.turn + 1}",
            messages=(*self.messages, said, asked),
            turn=self.turn + 1,
            follow_ups=self.follow_ups[1:],
        )

"""What a run is asked to do: frozen settings, and their strict loading.

Names are SGLang's (semantics.md 1): ``num_steps`` K is the draft depth, ``topk`` b the branching,
``num_draft_tokens`` N the nodes given to verification with the root counted.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from specbench.errors import ConfigError
from specbench.verification import Verification, VerifyRules

T = TypeVar("T")
MOST_THREADS = 1024
MOST_STEPS = 1024
D2T_MEANINGS = ("offsets", "direct")  # what a draft's d2t is said to hold (engine-spec 1.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecConfig:
    """One point of speculation. ``num_steps`` 0 drafts nothing: the baseline.

    Raises:
        ConfigError: the three numbers contradict each other; both sides are named.
    """

    num_steps: int
    topk: int
    num_draft_tokens: int

    def __post_init__(self) -> None:
        k, b, n = self.num_steps, self.topk, self.num_draft_tokens
        if k < 0 or b < 1 or n < 1:
            raise ConfigError(
                f"num_steps={k} topk={b} num_draft_tokens={n} holds a value that is too small.",
                expected="num_steps >= 0, topk >= 1 and num_draft_tokens >= 1 are needed.",
            )
        if k > MOST_STEPS:
            raise ConfigError(f"num_steps={k}.", expected=f"At most {MOST_STEPS}.")
        if k == 0 and (b != 1 or n != 1):
            raise ConfigError(
                f"num_steps=0 drafts nothing, but topk={b} num_draft_tokens={n} asks for "
                f"{n - 1} nodes.",
                todo="Set topk=1 and num_draft_tokens=1 for the baseline, or num_steps over 0.",
            )
        if k > 0 and b == 1 and n != k + 1:
            raise ConfigError(
                f"num_steps={k} topk=1 drafts a chain of {k}, but num_draft_tokens={n} asks for "
                f"{n - 1} nodes.",
                expected=f"SGLang would silently use {k + 1}.",
                todo=f"Set num_draft_tokens={k + 1}, or topk>1 for a tree.",
            )
        if k > 0 and b > 1 and not 2 <= n <= self.most_nodes(k, b) + 1:
            raise ConfigError(
                f"num_draft_tokens={n} does not fit num_steps={k} topk={b}, which can propose "
                f"{self.most_nodes(k, b)} nodes.",
                expected=f"2..{self.most_nodes(k, b) + 1} is legal, the root counted.",
                todo="Lower num_draft_tokens, or raise num_steps or topk.",
            )

    @staticmethod
    def most_nodes(num_steps: int, topk: int) -> int:
        """Nodes that drafting can propose, root not counted: b + (K - 1)·b² (engine-spec 4.3)."""
        return topk + (num_steps - 1) * topk * topk if num_steps else 0

    @classmethod
    def baseline(cls) -> Self:
        """No speculation: the empty tree."""
        return cls(num_steps=0, topk=1, num_draft_tokens=1)

    @classmethod
    def chain(cls, num_steps: int) -> Self:
        """The chain of ``num_steps`` drafts (0 gives the baseline)."""
        return cls(num_steps=num_steps, topk=1, num_draft_tokens=num_steps + 1)

    @classmethod
    def from_vllm(cls, num_speculative_tokens: int) -> Self:
        """vLLM's ``num_speculative_tokens``, which counts neither root nor bonus."""
        return cls.chain(num_speculative_tokens)

    @property
    def is_baseline(self) -> bool:
        """True when nothing is drafted."""
        return self.num_steps == 0

    @property
    def is_chain(self) -> bool:
        """True for a chain of at least one draft."""
        return self.num_steps > 0 and self.topk == 1

    @property
    def point_id(self) -> str:
        """A short stable name: ``base``, ``k3`` for a chain, ``k3b2n8`` for a tree."""
        if self.is_baseline:
            return "base"
        if self.topk == 1:
            return f"k{self.num_steps}"
        return f"k{self.num_steps}b{self.topk}n{self.num_draft_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The in-process engine. ``auto`` is resolved when the models are loaded, and recorded.

    ``d2t`` direct accepts a draft whose map holds target ids instead of offsets.
    """

    device: str = "auto"
    dtype: str = "auto"
    threads: int = 1
    max_batch_size: int = 4
    max_len: int = 1024
    use_graphs: bool = True
    force_share_embed: bool = False
    d2t: str = "offsets"
    kernels: str = "auto"
    tensor_parallel: int = 1
    prefill_chunk: int = 256
    prefix_reuse: bool = False
    verification: Verification = Verification.TARGET_ONLY
    threshold_single: float = 1.0
    threshold_acc: float = 1.0

    def __post_init__(self) -> None:
        if self.dtype not in ("auto", "float64", "float32", "bfloat16", "float16"):
            raise ConfigError(
                f"dtype={self.dtype!r} is unknown.",
                expected="One of auto, float64, float32, bfloat16, float16.",
            )
        if self.kernels not in ("auto", "native", "torch"):
            raise ConfigError(
                f"kernels={self.kernels!r} is unknown.", expected="One of auto, native, torch."
            )
        if self.d2t not in D2T_MEANINGS:
            raise ConfigError(
                f"d2t={self.d2t!r} is unknown.", expected=f"One of {', '.join(D2T_MEANINGS)}."
            )
        if self.kernels == "native" and self.tensor_parallel > 1:
            raise ConfigError(
                f"kernels=native with tensor_parallel={self.tensor_parallel}.",
                expected="The compiled forward runs whole models in one process.",
                todo="Use kernels=auto or torch, or tensor_parallel=1.",
            )
        for name in ("threads", "max_batch_size", "max_len", "prefill_chunk", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name}={getattr(self, name)}.", expected="At least 1 is needed."
                )
        if self.threads > MOST_THREADS:  # OpenMP dies of too many without a word
            raise ConfigError(f"threads={self.threads}.", expected=f"At most {MOST_THREADS}.")
        _ = self.rules

    @property
    def rules(self) -> VerifyRules:
        """How drafts are checked at temperature > 0."""
        return VerifyRules(
            method=self.verification,
            threshold_single=self.threshold_single,
            threshold_acc=self.threshold_acc,
        )


class Arrival(enum.StrEnum):
    """How the requests of an open loop are spaced."""

    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"
    TRACE = "trace"  # at the times of a timed trace


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """Closed loop (``request_rate`` None: ``concurrency`` in flight) or open loop.

    ``burstiness`` is the shape of the gamma distribution of gaps: 1 is Poisson, below 1 burstier.
    With the arrivals of a trace ``request_rate`` is their mean.
    """

    concurrency: int = 1
    request_rate: float | None = None
    arrival: Arrival = Arrival.POISSON
    burstiness: float = 1.0
    warmup_requests: int = 1
    timeout_s: float = 600.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency={self.concurrency}.", expected="At least 1 is needed.")
        if self.request_rate is not None and not 1e-6 <= self.request_rate <= 1e9:
            raise ConfigError(
                f"request_rate={self.request_rate}.",
                expected="A positive number (1e-6 to 1e9 per second), or none for a closed loop.",
            )
        if not 1e-3 <= self.burstiness <= 1e6:
            raise ConfigError(f"burstiness={self.burstiness}.", expected="From 1e-3 to 1e6.")
        if self.arrival is not Arrival.GAMMA and self.burstiness != 1.0:
            raise ConfigError(
                f"burstiness={self.burstiness} does not apply to arrival={self.arrival}.",
                todo="Set arrival=gamma, or leave burstiness out.",
            )
        if self.warmup_requests < 0:
            raise ConfigError(f"warmup_requests={self.warmup_requests}.", expected="0 or more.")
        if not 1e-3 <= self.timeout_s <= 1e7:
            raise ConfigError(f"timeout_s={self.timeout_s:g}.", expected="From 1e-3 to 1e7 s.")

    @property
    def open_loop(self) -> bool:
        """True when requests are sent on a schedule."""
        return self.request_rate is not None


def load_strict(cls: type[T], values: Mapping[str, Any], *, source: str) -> T:
    """Build dataclass ``cls`` from plain data; unknown keys and wrong types are errors.

    Args:
        cls: a dataclass of this package.
        values: parsed JSON or TOML.
        source: where the values come from, for the message.

    Raises:
        ConfigError: an unknown key (with "did you mean"), a missing one, or a wrong type.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{source} holds a {type(values).__name__}.", expected=f"A table of {cls.__name__}."
        )
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]  # T is a dataclass
    hints = typing.get_type_hints(cls)
    for key in values:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(fields)}."
            raise ConfigError(f"{source}: unknown key {key!r}.", todo=hint)
    for name, field in fields.items():
        required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if required and name not in values:
            raise ConfigError(f"{source}: key {name!r} is missing.")
    return cls(**{k: _coerce(v, hints[k], f"{source}: {k}") for k, v in values.items()})


def _coerce(value: Any, hint: Any, where: str) -> Any:
    """``value`` as ``hint``: nested dataclasses, enums, tuples and unions of plain types."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        real = [a for a in args if a is not type(None)]
        return _coerce(value, real[0], where) if len(real) == 1 else value
    if origin in (tuple, Mapping):
        kind, name = ((list, tuple), "list") if origin is tuple else (Mapping, "table")
        if not isinstance(value, kind):
            raise ConfigError(
                f"{where}={value!r} is a {type(value).__name__}.", expected=f"A {name}."
            )
    if origin is Mapping:
        return {key: _coerce(inner, args[1], f"{where}.{key}") for key, inner in value.items()}
    if origin is tuple:
        inner = [args[0]] * len(value) if args[-1] is Ellipsis else list(args)
        if len(inner) != len(value):
            raise ConfigError(f"{where} holds {len(value)} values.", expected=f"{len(inner)}.")
        return tuple(_coerce(v, t, where) for v, t in zip(value, inner, strict=True))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else load_strict(hint, value, source=where)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            names = ", ".join(str(m.value) for m in hint)
            raise ConfigError(
                f"{where}={value!r} is unknown.", expected=f"One of {names}."
            ) from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and (
        not isinstance(value, hint) or (hint is not bool and isinstance(value, bool))
    ):
        raise ConfigError(
            f"{where}={value!r} is a {type(value).__name__}.", expected=f"A {hint.__name__}."
        )
    return value

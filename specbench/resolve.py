"""From the numbers that were asked to a legal point, and what an engine would change in silence."""

from __future__ import annotations

from dataclasses import dataclass

from specbench.config import SpecConfig
from specbench.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One value that an engine would change in silence, and why."""

    name: str
    asked: str
    resolved: str
    reason: str


def resolve(
    *, num_steps: int, topk: int | None, num_draft_tokens: int | None, as_engine: str | None = None
) -> tuple[SpecConfig, tuple[Override, ...]]:
    """Turn what was asked into a SpecConfig and the list of what was changed, and why.

    Without ``as_engine`` only values that were left out are filled in, and a conflict raises.
    With ``sglang`` or ``vllm`` the engine's own silent rules apply (engine-spec 4.1 rule 8, 4.4).

    Raises:
        ConfigError: the values conflict, or ``as_engine`` is unknown.
    """
    if as_engine not in (None, "sglang", "vllm"):
        raise ConfigError(f"as_engine={as_engine!r} is unknown.", expected="sglang or vllm.")
    overrides: list[Override] = []

    def change(name: str, asked: object, value: int, reason: str) -> int:
        if asked != value:
            overrides.append(
                Override(name=name, asked=str(asked), resolved=str(value), reason=reason)
            )
        return value

    if num_steps == 0:
        if as_engine is None and (topk not in (None, 1) or num_draft_tokens not in (None, 1)):
            SpecConfig(num_steps=0, topk=topk or 1, num_draft_tokens=num_draft_tokens or 1)
        change("topk", topk, 1, "num_steps=0 drafts nothing")
        change("num_draft_tokens", num_draft_tokens, 1, "num_steps=0 drafts nothing")
        return SpecConfig.baseline(), tuple(overrides)
    if topk is None:
        topk = change("topk", None, 1, "left out: a chain")
    if as_engine == "vllm" and topk != 1:
        topk = change("topk", topk, 1, "vLLM 0.32 drafts chains only")
    if topk == 1 and (num_draft_tokens is None or as_engine is not None):
        reason = "left out: a chain of num_steps, root counted"
        if num_draft_tokens is not None:
            reason = f"{as_engine} uses num_steps + 1 when topk is 1 (only a warning in its log)"
        num_draft_tokens = change("num_draft_tokens", num_draft_tokens, num_steps + 1, reason)
    if num_draft_tokens is None:
        raise ConfigError(
            f"num_steps={num_steps} topk={topk} is a tree, but num_draft_tokens is not given.",
            expected=f"2..{SpecConfig.most_nodes(num_steps, topk) + 1}, the root counted.",
            todo="Give --num-draft-tokens.",
        )
    spec = SpecConfig(num_steps=num_steps, topk=topk, num_draft_tokens=num_draft_tokens)
    return spec, tuple(overrides)

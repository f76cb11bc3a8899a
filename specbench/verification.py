"""How drafts are checked when tokens are sampled, and which of these ways may change the output.

Greedy requests are always checked by argmax (engine-spec 6.1); the methods differ only where a
temperature is set.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from specbench.errors import ConfigError
from specbench.estimate import Caveat, Severity

LOSSY_THRESHOLDS = "lossy_thresholds"
UNUSED = "verification_unused"


class Verification(enum.StrEnum):
    """The rule that accepts drafts at temperature > 0 (engine-spec 6.2, 6.3)."""

    TARGET_ONLY = "target_only"
    REJECTION = "rejection"
    ONE_HOT = "one_hot"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRules:
    """A method and its thresholds.

    ``target_only`` looks at the target's probabilities alone and takes trees (SGLang's default).
    ``rejection`` and ``block`` draw the drafts from the draft's own distribution and use it;
    ``one_hot`` takes the draft's best token as certain. These three check chains. Both thresholds
    belong to ``target_only``: below 1 they accept more drafts than the target agrees to.

    Raises:
        ConfigError: a threshold is outside (0, 1], or below 1 with another method.
    """

    method: Verification = Verification.TARGET_ONLY
    threshold_single: float = 1.0
    threshold_acc: float = 1.0

    def __post_init__(self) -> None:
        for name in ("threshold_single", "threshold_acc"):
            value = getattr(self, name)
            if not 0.0 < value <= 1.0:
                raise ConfigError(
                    f"{name}={value} is outside (0, 1].", expected="1 is exact, below 1 is lossy."
                )
            if value < 1.0 and self.method is not Verification.TARGET_ONLY:
                raise ConfigError(
                    f"{name}={value:g} does nothing with verification={self.method.value}.",
                    todo=f"Use verification=target_only, or leave {name} out.",
                )

    @property
    def draws_drafts(self) -> bool:
        """True when drafts are sampled, and the distribution they come from is kept."""
        return self.method in (Verification.REJECTION, Verification.BLOCK)

    @property
    def loss(self) -> str:
        """What makes sampled output differ from the target's own; empty when nothing does."""
        names = ("threshold_single", "threshold_acc")
        low = [f"{name}={getattr(self, name):g}" for name in names if getattr(self, name) < 1.0]
        return f"{' and '.join(low)}, below 1" if low else ""

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """What a run says of itself when its sampled output may differ from the target's."""
        return (lossy_caveat(self.loss),) if self.loss else ()

    def unused(self, temperatures: Sequence[float]) -> tuple[Caveat, ...]:
        """What to say when these rules were chosen, and no request of a run samples."""
        if self == VerifyRules() or any(temperature > 0 for temperature in temperatures):
            return ()
        text = (
            f"verification={self.method.value} decides nothing here: every temperature is 0, and "
            "greedy requests are checked by argmax"
        )
        return (Caveat(code=UNUSED, severity=Severity.NOTE, text=text),)

    def check(self, topk: int) -> None:
        """Refuse a tree where only chains can be checked.

        Raises:
            ConfigError: ``topk`` is over 1 and the method takes chains.
        """
        if topk > 1 and self.method is not Verification.TARGET_ONLY:
            raise ConfigError(
                f"verification={self.method.value} checks chains, but topk={topk} drafts a tree.",
                todo="Use verification=target_only, or topk=1.",
            )


def lossy_caveat(loss: str) -> Caveat:
    """What a run says of itself when ``loss``, as :attr:`VerifyRules.loss` words it, is there."""
    text = f"{loss}: at temperature > 0 drafts are accepted that the target does not back"
    return Caveat(code=LOSSY_THRESHOLDS, severity=Severity.NOTE, text=text)

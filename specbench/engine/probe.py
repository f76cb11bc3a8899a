"""How well a draft guesses the target's own text: sums per reply, for any grouping of replies.

Figures that are often taken for one another (engine-spec 11.1 to 11.4): accuracy with true tokens
fed in, survival of a chain fed its own tokens, levels of a tree, and the accept length of the
verify steps that a server would make.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specbench.config import SpecConfig
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_stored import load_stored
from specbench.engine.probe_sums import ReplySums, reply_sums
from specbench.engine.probe_text import greedy_texts
from specbench.engine.probe_tree import tree_levels
from specbench.errors import ConfigError, WorkloadError
from specbench.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe counted.

    ``layers`` are the physical indices captured, ``left_out`` the requests that the budget of
    positions had no room for. ``own_text``: the replies are the target's own. ``notes`` say what
    stored features were found to be, empty when the target ran.
    """

    steps: int
    tree: SpecConfig | None
    layers: tuple[int, ...]
    replies: tuple[ReplySums, ...]
    left_out: int
    own_text: bool = True
    notes: tuple[str, ...] = ()

    @property
    def positions(self) -> int:
        """Chain starts of all replies."""
        return sum(reply.positions for reply in self.replies)

    def categories(self) -> tuple[str, ...]:
        """In the order met."""
        return tuple(dict.fromkeys(reply.category for reply in self.replies))


def probe(
    pair: ModelPair,
    draft: ProbeDraft,
    requests: Sequence[Request],
    *,
    steps: int,
    positions: int,
    tree: SpecConfig | None = None,
) -> ProbeResult:
    """Score the draft on the target's greedy replies, wired as its files claim.

    Args:
        pair: loaded models; float32 or wider for exact figures.
        draft: the draft, apart from the engine.
        requests: prompts; their sampling gives the length.
        steps: K.
        positions: most chain starts; whole requests, in order, while their max_tokens fit.
        tree: trees of K levels to grow as well.

    Raises:
        ConfigError: K or the budget is under 1, or the streams do not fit into memory.
        WorkloadError: no request fits, or no reply has two tokens.
    """
    _check_steps(steps, tree)
    taken = _within(requests, positions)
    samples = greedy_texts(pair, taken, past=steps)
    wiring = draft.claimed
    captured = capture(
        pair, samples, vocab_ids=draft.target_ids(), layers=wiring.slots, taps=(wiring.tap,)
    )
    return ProbeResult(
        steps=steps,
        tree=tree,
        layers=wiring.slots,
        replies=_scored(draft, captured, steps, tree, own_text=True),
        left_out=len(requests) - len(taken),
    )


def probe_stored(
    pair: ModelPair,
    draft: ProbeDraft,
    path: Path,
    *,
    steps: int,
    positions: int,
    requests: int,
    tree: SpecConfig | None = None,
) -> ProbeResult:
    """Score the draft on stored features, wired as its files claim; arguments as ``probe``.

    Args:
        path: of the features; see ``load_stored``.
        requests: most texts.

    Raises:
        ConfigError, WorkloadError: as ``probe`` and ``load_stored``.
    """
    _check_steps(steps, tree)
    slots = draft.claimed.slots
    stored = load_stored(
        pair,
        path,
        slots,
        draft.target_ids(),
        steps=steps,
        requests=requests,
        positions=positions,
    )
    return ProbeResult(
        steps=steps,
        tree=tree,
        layers=slots,
        replies=_scored(draft, stored.capture, steps, tree, own_text=stored.own_text),
        left_out=stored.left_out,
        own_text=stored.own_text,
        notes=stored.notes,
    )


def _check_steps(steps: int, tree: SpecConfig | None) -> None:
    if steps < 1:
        raise ConfigError(f"num_steps {steps}.", expected="1 or more.")
    if tree is not None and tree.num_steps != steps:
        raise ConfigError(f"num_steps {steps}, but the trees have {tree.num_steps} levels.")


def _scored(
    draft: ProbeDraft, captured: Capture, steps: int, tree: SpecConfig | None, *, own_text: bool
) -> tuple[ReplySums, ...]:
    scores = draft.score(captured, draft.claimed, steps)
    levels = None
    if tree is not None:
        levels = tree_levels(draft, captured, draft.claimed, tree) & scores.greedy
    return reply_sums(captured, scores, steps, levels, own_text=own_text)


def _within(requests: Iterable[Request], budget: int) -> list[Request]:
    """Requests from the front whose max_tokens add up to no more than ``budget``."""
    taken: list[Request] = []
    for request in requests:
        budget -= request.sampling.max_tokens
        if budget < 0:
            break
        taken.append(request)
    if not taken:
        raise WorkloadError(
            "no request fits the budget of positions.",
            expected="A budget of at least one request's max_tokens.",
            todo="Raise --positions or lower --max-tokens.",
        )
    return taken

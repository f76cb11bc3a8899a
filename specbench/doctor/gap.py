"""From a training accuracy to what is served, and where the difference goes (engine-spec 11).

====================  ======================  ========================  =========================
framework             later steps are         tokens outside the map    L(K) of accuracies a_k
====================  ======================  ========================  =========================
eagle, specforge      each on its own         count as wrong            1 + sum of prod a_1..a_k
speculators           all steps right so far  cannot be wrong           1 + sum of a_k
speculators-cond      right if those before   cannot be wrong           1 + sum of prod a_1..a_k
====================  ======================  ========================  =========================

One accuracy alone is taken for every step, a rough check only: with positions of unequal
difficulty the true length is larger (engine-spec 11.5).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from specbench.errors import ConfigError

MOST_STEPS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """What a training accuracy means there."""

    name: str
    cumulative: bool
    ignores_unknown: bool
    source: str


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework(name="eagle", cumulative=False, ignores_unknown=False,
                  source="traineagle3/cnets.py: d2t(argmax) against the full vocabulary"),
        Framework(name="specforge", cumulative=False, ignores_unknown=False,
                  source="core/eagle3.py: d2t(argmax) against the full vocabulary"),
        Framework(name="speculators", cumulative=True, ignores_unknown=True,
                  source="full_acc: argmax within the draft's vocabulary on both sides"),
        Framework(name="speculators-cond", cumulative=False, ignores_unknown=True,
                  source="cond_acc: argmax within the draft's vocabulary on both sides"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """First-position figures that were measured, each None where it was not.

    ``restricted`` and ``full`` are offline accuracies on the target's own greedy text, within the
    draft's vocabulary and over all tokens; ``template`` is ``full`` with the training template.
    ``unknown`` is the share of tokens outside the map, ``engine`` the served first position.
    ``off_policy`` is the accuracy by the framework's own definition on training data under the
    training template, ``at_steps`` the offline accuracy where steps begin: after a token that a
    draft got wrong, mostly, so lower than over all positions.
    """

    restricted: float | None = None
    full: float | None = None
    template: float | None = None
    unknown: float | None = None
    engine: float | None = None
    off_policy: float | None = None
    at_steps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of the difference, in points of the first position; None: not measured."""

    name: str
    points: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """``implied`` is the accept length that training implies, ``total`` the difference at the
    first position (None without a served figure), split into ``terms``. ``inferred`` is the served
    first position where it was not counted but taken from the accept length."""

    implied: float
    served: float | None
    total: float | None
    terms: tuple[Term, ...]
    inferred: float | None = None


def implied_length(accuracies: Sequence[float], framework: Framework, num_steps: int) -> float:
    """Accept length of a greedy chain of ``num_steps`` drafts.

    >>> round(implied_length([0.747], FRAMEWORKS["specforge"], 5), 2)
    3.27
    >>> round(implied_length([0.75, 0.57, 0.45], FRAMEWORKS["speculators"], 3), 2)
    2.77

    Raises:
        ConfigError: shares outside 0..1, cumulative ones that rise, or too few of them.
    """
    if not accuracies or any(not (math.isfinite(a) and 0 <= a <= 1) for a in accuracies):
        raise ConfigError(
            f"--train-accuracy {list(accuracies)}.", expected="Shares from 0 to 1, by step."
        )
    if not 1 <= num_steps <= MOST_STEPS:
        raise ConfigError(f"--num-steps {num_steps}.", expected=f"1 to {MOST_STEPS}.")
    values = list(accuracies)
    if len(values) == 1:
        values = [values[0] ** (k if framework.cumulative else 1) for k in range(1, num_steps + 1)]
    if len(values) < num_steps:
        raise ConfigError(
            f"--train-accuracy names {len(values)} steps, and --num-steps is {num_steps}.",
            expected="One accuracy, or one per step.",
        )
    if framework.cumulative and any(b > a for a, b in itertools.pairwise(values)):
        raise ConfigError(
            f"--train-accuracy {values} rises.",
            expected=f"{framework.source}: shares of rows right in all steps so far.",
        )
    reached = values if framework.cumulative else itertools.accumulate(values, lambda a, b: a * b)
    return 1 + sum(itertools.islice(reached, num_steps))


def split_gap(
    accuracies: Sequence[float],
    framework: Framework,
    num_steps: int,
    measured: Measured,
    served: float | None = None,
) -> Gap:
    """Split training minus served first position; known terms and the rest add up to the total.

    Args:
        accuracies: by training step.
        framework: what they mean.
        num_steps: K of the served chain.
        measured: what is known of the first position.
        served: measured accept length; stands in for a first position that is not known, taking
            acceptance equal at all positions.
    """
    implied = implied_length(accuracies, framework, num_steps)
    first, guessed = measured.engine, None
    if first is None and served is not None:
        first = guessed = constant_share(served, num_steps)
    total = None if first is None else accuracies[0] - first
    terms = [
        *_definition(framework, measured),
        _text(framework, measured),
        _template(measured),
        *_serving(measured),
    ]
    known = sum(term.points or 0.0 for term in terms)
    rest = None if total is None else total - known
    missing = [term.name for term in terms if term.points is None]
    why = f"holds what is not measured: {', '.join(missing)}" if missing else ""
    side = _training_side(accuracies[0], framework, measured)
    terms.append(Term(name="unexplained", points=rest, why="; ".join(w for w in (why, side) if w)))
    return Gap(implied=implied, served=served, total=total, terms=tuple(terms), inferred=guessed)


def constant_share(length: float, num_steps: int) -> float:
    """The conditional share c, equal at all positions, with 1 + c + ... + c^K = length.

    >>> round(constant_share(1.9, 15), 3)
    0.474

    Raises:
        ConfigError: a length that K drafts cannot give.
    """
    if not 1 <= length <= num_steps + 1:
        raise ConfigError(
            f"accept length {length} at num_steps {num_steps}.",
            expected=f"From 1 to {num_steps + 1}, the bonus token counted.",
        )
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if 1 + sum(middle**k for k in range(1, num_steps + 1)) < length:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _definition(framework: Framework, measured: Measured) -> list[Term]:
    """What the definition hides, and within it tokens that the map lacks."""
    if not framework.ignores_unknown:
        return [
            Term(name="definition", points=0.0, why="counts tokens outside the map as wrong, too"),
            Term(name="out of vocabulary", points=0.0, why="is within the training accuracy"),
        ]
    if measured.restricted is None or measured.full is None:
        why = "needs the restricted and the full accuracy of a probe"
        return [
            Term(name="definition", points=None, why=why),
            Term(name="out of vocabulary", points=None, why=why),
        ]
    both = measured.restricted - measured.full
    lost = None if measured.unknown is None else min(both, measured.unknown * measured.restricted)
    rest = both if lost is None else both - lost
    return [
        Term(name="definition", points=rest, why="argmax within the draft's vocabulary"),
        Term(
            name="out of vocabulary",
            points=0.0 if lost is None else lost,
            why="is within definition here" if lost is None else "tokens it can never propose",
        ),
    ]


def _own(framework: Framework, measured: Measured) -> float | None:
    """By the framework's definition, on the target's own text under the training template."""
    own = measured.restricted if framework.ignores_unknown else measured.full
    if own is not None and measured.template is not None and measured.full is not None:
        return own + measured.template - measured.full
    return own


def _text(framework: Framework, measured: Measured) -> Term:
    own, points = _own(framework, measured), None
    why = "needs a probe on the target's own text and one on training data (--train-data)"
    if own is not None and measured.off_policy is not None:
        points, why = measured.off_policy - own, "training replies against the target's own"
    return Term(name="off-policy text", points=points, why=why)


def _training_side(accuracy: float, framework: Framework, measured: Measured) -> str:
    """How much of the rest lies between the training's figure and a probe by its definition."""
    if measured.off_policy is not None:
        apart, where = accuracy - measured.off_policy, "the same data scored here"
    else:
        own = _own(framework, measured)
        if own is None:
            return ""
        apart, where = accuracy - own, "the target's own text scored here"
    return (
        f"{100 * apart:+.1f} of it between the training's figure and {where}: near-duplicates in "
        "validation, targets without the verifier's norm (F17 of docs/failures.md), other text"
    )


def _serving(measured: Measured) -> list[Term]:
    """From all positions to those where steps begin, and from there to the engine."""
    full, steps, engine = measured.full, measured.at_steps, measured.engine
    begins = Term(name="step starts", points=None, why="needs a probe of where steps begin")
    if full is not None and steps is not None:
        why = "steps begin where a draft failed: harder than the average position, and no fault"
        begins = Term(name="step starts", points=full - steps, why=why)
    served = Term(name="engine", points=None, why="needs a probe and a served first position")
    if steps is not None and engine is not None:
        why = "should be 0: offline and engine on the same text"
        served = Term(name="engine", points=steps - engine, why=why)
    return [begins, served]


def _template(measured: Measured) -> Term:
    if measured.template is None or measured.full is None:
        return Term(name="template", points=None, why="needs both templates scored")
    return Term(name="template", points=measured.template - measured.full, why="training template")

"""What a comparison could have shown: its smallest detectable effect, and the noise it stands on.

An interval that is symmetric in the logarithm excludes 1 when the log ratio is farther from 0 than
half its width, so a true log ratio of ``d`` is found with power ``P(Z > (half - d) / error)``, and
80 % need ``d = half + 0.84 * error``. ``benchmarks/speedup_power.py`` plants slowdowns and finds
them as often as this says, within 3 points from 12 to 300 prompts.

The *noise floor* is seen, not computed: a second plain arm in the same interleaved blocks is
measured as if it were a speedup. What it shows is noise and drift of machine and server; a speedup
within its interval is not told from it.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from specbench.estimate import Estimate
from specbench.metrics.stats import CONFIDENCE

POWER = 0.8
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


def minimum_detectable_effect(speedup: Estimate | None, power: float = POWER) -> float | None:
    """The smallest change that a comparison as noisy as this one finds with ``power``.

    Returns:
        A share: 0.03 means that a true speedup of 1.03 (or 1 / 1.03) would most likely have been
        told from 1. None without an interval.
    """
    half = half_width(speedup)
    if speedup is None or half is None:
        return None
    return math.expm1(half + NormalDist().inv_cdf(power) * _error(speedup, half))


def power_of(speedup: Estimate, effect: float) -> float | None:
    """Chance that such a comparison tells a true ratio of 1 + ``effect`` from 1; None: no interval.

    >>> from specbench.estimate import Evidence
    >>> seen = Estimate(value=1, low=0.98, high=1 / 0.98, n=30, unit="x", evidence=Evidence.STEPS)
    >>> effect = minimum_detectable_effect(seen)
    >>> round(effect, 4), round(power_of(seen, effect), 6)
    (0.0293, 0.8)
    """
    half = half_width(speedup)
    if half is None:
        return None
    error = _error(speedup, half)
    if error == 0:
        return float(effect != 0)
    return NormalDist().cdf((abs(math.log1p(effect)) - half) / error)


def half_width(speedup: Estimate | None) -> float | None:
    """Half the width of the interval, on the logarithm; None without one."""
    if speedup is None or speedup.low is None or speedup.high is None or speedup.low <= 0:
        return None
    return (math.log(speedup.high) - math.log(speedup.low)) / 2


def _error(speedup: Estimate, half: float) -> float:
    """Standard error of the log ratio; where it was not kept, that of a normal interval."""
    return half / _Z if speedup.log_error is None else speedup.log_error


def noise_floor(again: Estimate | None) -> float | None:
    """The largest change that the A/A comparison ``again`` allows for; None without an interval.

    >>> from specbench.estimate import Evidence
    >>> seen = Estimate(value=1, low=0.98, high=1.01, n=30, unit="x", evidence=Evidence.STEPS)
    >>> round(noise_floor(seen), 4)
    0.0204
    """
    if again is None or again.low is None or again.high is None or again.low <= 0:
        return None
    return math.expm1(max(abs(math.log(again.low)), abs(math.log(again.high))))

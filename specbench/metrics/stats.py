"""Percentiles and intervals: how sure a number is (semantics.md 19).

Everything here works on per-request sums, so that one resample is one row of a matrix product.

**Method.** The quantities that matter (accept length, tokens/s, speedup) are ratios of sums over
requests. Their logarithm is resampled over requests by the *symmetric studentised bootstrap*
(Hall, The Bootstrap and Edgeworth Expansion, 1992, section 3.6): each resample's log ratio is
divided by its own delta-method standard error, and the 95 % point of the absolute values scales
the standard error of the data. Steps of one request are correlated, so steps are never resampled.

**Coverage.** ``benchmarks/coverage.py`` simulates A/A runs (log-normal lengths, times correlated
within a request, rare slow requests) and samples of accept length. Share of nominal 95 %
intervals that hold the truth, 4,000 simulations of each size, in per cent:

====================================  ====  ====  ====
interval                                12    30   100
====================================  ====  ====  ====
symmetric studentised, A/A speedup    95.0  95.8  96.7
symmetric studentised, accept length  94.3  94.8  94.7
equal-tailed studentised, A/A         91.4  91.3  91.8
BCa, A/A speedup                      84.4  86.2  88.1
====================================  ====  ====  ====

BCa is too narrow for these ratios at every size, so it is not offered. Under 12 units (blocks)
Student's t takes the place of the bootstrap.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]

LEAST_REQUESTS = 12
LEAST_RUNS = 5
RESAMPLES = 2000
SEED = 20240607
CONFIDENCE = 0.95
_ASYMPTOTIC = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its 95 % interval; ``low`` and ``high`` are None when there are too few units.

    ``n`` counts the units that were resampled; ``log_error`` is the standard error of the value's
    logarithm, where the interval rests on it.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    log_error: float | None = None


def percentile(values: Sequence[float] | Numbers, q: float) -> float | None:
    """The ``q``-th percentile (0..100) by linear interpolation between order statistics.

    Hyndman and Fan's type 7, numpy's default: the rank is ``(n - 1) * q / 100``. With fewer than
    100 samples p99 therefore lies between the two largest. None without samples.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.5
    >>> percentile([], 50) is None
    True
    """
    return percentiles(values, (q,))[0]


def percentiles(values: Sequence[float] | Numbers, qs: Sequence[float]) -> tuple[float | None, ...]:
    """:func:`percentile` for each of ``qs``, of values that are sorted out once."""
    if len(values) == 0:
        return (None,) * len(qs)
    found = np.percentile(np.asarray(values, dtype=np.float64), qs, method="linear")
    return tuple(found.tolist())


def log_linear(
    columns: FloatArray, exponents: Sequence[int], *, least: int = LEAST_REQUESTS
) -> Interval | None:
    """``prod_j (sum_i columns[i, j]) ** exponents[j]`` with its interval over the rows.

    Exponents 1 and -1 make a ratio of sums; 1, -1, -1, 1 a ratio of two such ratios on the same
    rows, which is a paired comparison.

    Args:
        columns: per-unit sums, shape (units, m), none negative.
        exponents: m whole numbers.
        least: under this many units there is a value but no interval.

    Returns:
        None when a column sums to 0: the value is not defined.

    >>> log_linear(np.array([[4.0, 2.0], [2.0, 2.0]]), (1, -1)).value
    1.5
    """
    n = len(columns)
    totals = columns.sum(axis=0)
    if n == 0 or not bool(np.all(totals > 0)):
        return None
    powers = np.asarray(exponents, dtype=np.float64)
    value = float(np.prod(totals**powers))
    if n < max(least, 2):
        return Interval(value=value, low=None, high=None, n=n)
    error = _standard_error(columns, powers)
    factor = math.exp(_quantile(columns, powers) * error)
    return Interval(value=value, low=value / factor, high=value * factor, n=n, log_error=error)


def _standard_error(columns: FloatArray, powers: FloatArray) -> float:
    """Delta-method standard error of the log of the product of sums."""
    n = len(columns)
    influence = (columns / columns.sum(axis=0)) @ powers
    return math.sqrt(float(influence @ influence) * n / (n - 1))


def _quantile(columns: FloatArray, powers: FloatArray) -> float:
    """The 95 % point of |log ratio of a resample - log ratio| / standard error of the resample."""
    n, m = columns.shape
    if n < LEAST_REQUESTS or n >= _ASYMPTOTIC:
        # Few units are blocks, each a sum over requests. A resample of few is often of nearly one
        # alone, whose spread is 0: the bootstrap's interval then reaches nowhere in particular.
        return student_t(n - 1)
    products = np.einsum("ij,ik->ijk", columns, columns).reshape(n, m * m)
    resampled = resample_weights(n) @ np.concatenate([columns, products], axis=1)
    sums = resampled[:, :m]
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = powers / sums
        second = resampled[:, m:].reshape(-1, m, m)
        variance = np.einsum("bj,bjk,bk->b", scaled, second, scaled) * n / (n - 1)
        shift = np.log(sums / columns.sum(axis=0)) @ powers
        studentised = np.abs(shift) / np.sqrt(variance)
    # A resample of one unit alone, or of units that agree exactly, has no spread to scale by.
    usable = studentised[(variance > 1e-24) & np.isfinite(studentised)]
    if len(usable) == 0:
        return 0.0
    return float(np.quantile(usable, CONFIDENCE))


@functools.lru_cache(maxsize=32)
def resample_weights(n: int, resamples: int = RESAMPLES, seed: int = SEED) -> FloatArray:
    """How often each of ``n`` units appears in each resample, shape (resamples, n); seeded."""
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(np.float64)
    weights.setflags(write=False)
    return weights


def student_t(degrees: float) -> float:
    """Two-sided 95 % point of Student's t, by Fisher's expansion around the normal point.

    Within 0.2 % from 4 degrees of freedom on (Abramowitz and Stegun 26.7.5).

    >>> round(student_t(11), 3)
    2.201
    """
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    terms = (z, first, second, third, fourth)
    return math.fsum(term / degrees**power for power, term in enumerate(terms))


def wilson(hits: int, n: int) -> Interval | None:
    """Share ``hits / n`` of independent outcomes with Wilson's score interval.

    Meant for shares of requests, never of steps. None when ``n`` is 0; no interval under 12.

    >>> share = wilson(3, 30)
    >>> round(share.low, 3), share.value, round(share.high, 3)
    (0.035, 0.1, 0.256)
    """
    if n == 0:
        return None
    share = hits / n
    if n < LEAST_REQUESTS:
        return Interval(value=share, low=None, high=None, n=n)
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return Interval(value=share, low=max(0.0, centre - half), high=min(1.0, centre + half), n=n)

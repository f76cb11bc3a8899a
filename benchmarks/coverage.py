"""How often a nominal 95 % interval holds the truth: the check behind ``metrics/stats.py``.

Usage: ``python -m benchmarks.coverage [--simulations 1000] [--requests 12,30,100] [--seed 1]``

Each simulation draws one benchmark of ``n`` requests and asks four intervals about it:

* *A/A speedup*: two arms that are the same, on the same prompts. The truth is 1.
* *accept length*: tokens ÷ verify steps. The truth comes from a million requests.

Lengths are log-normal; a request's accept length is shared by its steps; a step's time carries
noise of its own and noise that all steps of the request share; 3 % of the requests are slow.
Accepted by semantics.md 19: at least 93.5 % on A/A. ``--real N`` measures instead: N runs of the
shipped pair at each size (coverage_real.py).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np

from specbench.metrics.stats import FloatArray, log_linear, resample_weights

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One simulated benchmark: arrays of shape (requests,)."""

    tokens: FloatArray
    steps: FloatArray
    first_ms: FloatArray
    second_ms: FloatArray

    @property
    def paired_times(self) -> FloatArray:
        """Decode times of the two arms, shape (requests, 2)."""
        return np.stack([self.first_ms, self.second_ms], axis=1)

    @property
    def tokens_and_steps(self) -> FloatArray:
        """Numerator and denominator of accept length, shape (requests, 2)."""
        return np.stack([self.tokens, self.steps], axis=1)


def simulate(generator: np.random.Generator, requests: int) -> Sample:
    """Draw one benchmark of two equal arms."""
    tokens = np.clip(generator.lognormal(4.3, 0.8, requests).round(), 4, 1024)
    accept_length = 1 + generator.gamma(4, 0.6, requests)
    steps = np.ceil(tokens / accept_length)

    def decode_ms() -> FloatArray:
        shared = np.exp(generator.normal(0, 0.05, requests))
        slow = np.where(
            generator.random(requests) < 0.03, 1 + generator.exponential(0.3, requests), 1.0
        )
        own = np.exp(generator.normal(0, 0.1, requests) / np.sqrt(steps))
        return np.asarray(9.0 * steps * shared * slow * own, dtype=np.float64)

    return Sample(tokens=tokens, steps=steps, first_ms=decode_ms(), second_ms=decode_ms())


def true_accept_length(seed: int) -> float:
    """Tokens ÷ steps over a million requests."""
    big = simulate(np.random.default_rng(seed + 1), 1_000_000)
    return float(big.tokens.sum() / big.steps.sum())


def symmetric_studentised(columns: FloatArray) -> Bounds:
    """What specbench prints."""
    interval = log_linear(columns, (1, -1))
    if interval is None or interval.low is None or interval.high is None:
        raise ValueError("a simulation needs at least 12 requests")
    return interval.low, interval.high


def equal_tailed_studentised(columns: FloatArray) -> Bounds:
    """The same with a quantile for each side."""
    n = len(columns)
    x, y = columns.T
    sums = resample_weights(n) @ np.stack([x, y, x * x, x * y, y * y], axis=1)
    top, bottom = sums[:, 0], sums[:, 1]
    variance = sums[:, 2] / top**2 - 2 * sums[:, 3] / (top * bottom) + sums[:, 4] / bottom**2
    usable = variance > 0
    centre = math.log(x.sum() / y.sum())
    studentised = (np.log(top / bottom) - centre)[usable] / np.sqrt(variance[usable])
    influence = x / x.sum() - y / y.sum()
    error = math.sqrt(float(influence @ influence))
    low, high = np.quantile(studentised, [0.025, 0.975])
    return math.exp(centre - high * error), math.exp(centre - low * error)


def bca(columns: FloatArray) -> Bounds:
    """Bias-corrected and accelerated (Efron 1987)."""
    normal = NormalDist()
    sums = resample_weights(len(columns)) @ columns
    resampled = np.sort(sums[:, 0] / sums[:, 1])
    totals = columns.sum(axis=0)
    value = totals[0] / totals[1]
    below = float(np.mean(resampled < value) + 0.5 * np.mean(resampled == value))
    bias = normal.inv_cdf(min(max(below, 1e-6), 1 - 1e-6))
    left_out = totals - columns
    jackknife = left_out[:, 0] / left_out[:, 1]
    off = jackknife.mean() - jackknife
    acceleration = float((off**3).sum() / (6 * (off**2).sum() ** 1.5))
    bounds = []
    for tail in (0.025, 0.975):
        shifted = bias + normal.inv_cdf(tail)
        level = normal.cdf(bias + shifted / (1 - acceleration * shifted))
        bounds.append(float(np.quantile(resampled, level)))
    return bounds[0], bounds[1]


METHODS: dict[str, Callable[[FloatArray], Bounds]] = {
    "symmetric studentised": symmetric_studentised,
    "equal-tailed studentised": equal_tailed_studentised,
    "BCa": bca,
}


def coverage(
    method: Callable[[FloatArray], Bounds],
    *,
    requests: int,
    simulations: int,
    seed: int,
    accept_length: float | None = None,
) -> float:
    """Share of simulations whose interval holds the truth.

    Args:
        method: turns columns of shape (requests, 2) into bounds.
        requests: prompts of one simulated benchmark.
        simulations: how many benchmarks are drawn.
        seed: of the draws.
        accept_length: the true accept length; None asks about the A/A speedup instead.
    """
    generator = np.random.default_rng(seed)
    truth = 1.0 if accept_length is None else accept_length
    hits = 0
    for _ in range(simulations):
        drawn = simulate(generator, requests)
        low, high = method(drawn.paired_times if accept_length is None else drawn.tokens_and_steps)
        hits += low <= truth <= high
    return hits / simulations


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--requests", default="12,30,100")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", type=int, default=0, metavar="N")
    parser.add_argument("--per-block", type=int, default=2, help="prompts of a real block")
    parser.add_argument("--max-tokens", type=int, default=48, help="of a real request")
    parser.add_argument("--save", type=Path, help="add each real run to this file")
    args = parser.parse_args()
    sizes = [int(size) for size in args.requests.split(",")]
    if args.real:
        from benchmarks.coverage_real import real

        real(args.real, sizes, args.max_tokens, args.per_block, args.save)
        return
    truth = true_accept_length(args.seed)
    print(f"{args.simulations} simulations, nominal 95 %, accept length {truth:.3f}")
    print(f"{'':42}" + "".join(f"{size:>8}" for size in sizes))
    for name, method in METHODS.items():
        for what, accept_length in (("A/A speedup", None), ("accept length", truth)):
            shares = [
                coverage(
                    method,
                    requests=size,
                    simulations=args.simulations,
                    seed=args.seed,
                    accept_length=accept_length,
                )
                for size in sizes
            ]
            print(f"{name + ', ' + what:42}" + "".join(f"{100 * s:8.1f}" for s in shares))


if __name__ == "__main__":
    main()

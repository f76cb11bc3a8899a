"""Is a planted slowdown found as often as the printed power says?

Usage: ``python -m benchmarks.speedup_power [--simulations 1000] [--effect 0.05] [--seed 1]``

Each simulation draws one benchmark of two arms (``benchmarks/coverage.py``), slows the second by
``--effect`` and asks for the speedup's interval. *found* is the share of intervals that exclude 1
on the right side; *advertised* is the mean of ``metrics.power.power_of`` over them. The second
block does the same with each benchmark's own minimum detectable effect, where 80 % is promised.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from benchmarks.coverage import simulate
from specbench.estimate import Estimate, Evidence
from specbench.metrics.power import minimum_detectable_effect, power_of
from specbench.metrics.stats import log_linear

SIZES = (12, 30, 100, 300)


def slowed(generator: np.random.Generator, requests: int, effect: float) -> Estimate:
    """The speedup of an arm whose true decode times are 1 + ``effect`` times the baseline's."""
    times = simulate(generator, requests).paired_times * np.array([1.0, 1.0 + effect])
    interval = log_linear(times, (1, -1))
    if interval is None:
        raise ValueError("a simulation needs requests")
    return Estimate(
        value=interval.value,
        low=interval.low,
        high=interval.high,
        n=interval.n,
        unit="x",
        evidence=Evidence.STEPS,
        log_error=interval.log_error,
    )


def found_and_advertised(
    requests: int, simulations: int, seed: int, effect: float
) -> tuple[float, float]:
    """Share of simulations that find the slowdown, and the mean power they print."""
    generator = np.random.default_rng(seed)
    hits, promised = 0, 0.0
    for _ in range(simulations):
        seen = slowed(generator, requests, effect)
        hits += seen.high is not None and seen.high < 1
        promised += power_of(seen, effect) or 0.0
    return hits / simulations, promised / simulations


def typical_effect(requests: int, seed: int, power: float) -> float:
    """The median over A/A benchmarks of the effect that is found with ``power``."""
    generator = np.random.default_rng(seed + 1)
    effects = [
        minimum_detectable_effect(slowed(generator, requests, 0.0), power) for _ in range(200)
    ]
    return float(np.median([effect for effect in effects if effect is not None]))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--effect", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    error = 100 * math.sqrt(0.16 / args.simulations)
    print(f"{args.simulations} simulations each, standard error up to {error:.1f} points")
    print("requests  slowdown  found %  advertised %")
    for requests in SIZES:
        for effect in (args.effect, typical_effect(requests, args.seed, 0.8)):
            found, promised = found_and_advertised(requests, args.simulations, args.seed, effect)
            print(f"{requests:8}  {100 * effect:7.2f}%  {100 * found:7.1f}  {100 * promised:12.1f}")


if __name__ == "__main__":
    main()

"""How often ``specbench compare`` cries wolf: python -m benchmarks.compare_alarms

Simulates pairs of equal runs: prompts with their own accept lengths, blocks that share slow
minutes (each arm in each block is slowed by a factor of its own, beside the noise of a request),
several arms on one baseline. Prints the share of pairs in which *any* arm is called worse, which
must stay under 2.5 %, and how often one slowed arm among equals is found. ``--rows 4 5 6`` prints
only these of the fifteen rows, so that the table can be made in pieces.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specbench.estimate import Estimate, Evidence
from specbench.metrics.arms import ArmKey, Cell
from specbench.metrics.comparison import Change, compare
from specbench.metrics.curves import Curve, Timing, Unit
from specbench.metrics.stats import FloatArray, log_linear

CELL = Cell(workload="w", temperature=0.0, batch_size=1)
SIZES = ((20, 2, 4), (20, 2, 13), (40, 4, 13), (100, 4, 13), (100, 10, 4))  # prompts, blocks, arms
BLOCK_NOISE = (0.0, 0.02, 0.1)
ROWS = tuple((*size, block) for size in SIZES for block in BLOCK_NOISE)
SLOWER = (0.0, 0.05, 0.10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Noise, as standard deviations of a logarithm: of one request, and of an arm in a block."""

    request: float = 0.05
    block: float = 0.02


def run(
    rng: np.random.Generator,
    machine: Machine,
    steps_per_token: FloatArray,
    *,
    arms: int,
    blocks: int,
    slower: float = 0.0,
) -> tuple[Curve, ...]:
    """One simulated run.

    Args:
        rng: of this run.
        machine: its noise.
        steps_per_token: of each prompt; the same in both runs of a pair.
        arms: speculative arms on one baseline.
        blocks: the prompts are dealt out over them.
        slower: share by which the first arm's steps take longer.
    """
    prompts = len(steps_per_token)
    block_of = np.arange(prompts) * blocks // prompts
    tokens = np.full(prompts, 64)

    def times(mean_ms: FloatArray) -> FloatArray:
        noise = (
            rng.normal(0, machine.request, prompts) + rng.normal(0, machine.block, blocks)[block_of]
        )
        shown: FloatArray = np.round(mean_ms * np.exp(noise) * 1e6)
        return shown

    plain = times(tokens * 5.0)
    made = []
    for arm in range(arms):
        steps = np.ceil(tokens * steps_per_token)
        step_ms = 9.0 * (1 + slower if arm == 0 else 1.0)
        made.append(_curve(f"k{arm}", block_of, tokens, plain, steps, times(steps * step_ms)))
    return tuple(made)


def _curve(
    name: str,
    block_of: np.typing.NDArray[np.int64],
    tokens: np.typing.NDArray[np.int64],
    plain: FloatArray,
    steps: FloatArray,
    spec: FloatArray,
) -> Curve:
    names = [f"p{i}" for i in range(len(tokens))]
    sums = np.stack([plain, tokens, spec, tokens], axis=1).astype(np.float64)
    found = log_linear(sums, (1, -1, -1, 1))
    assert found is not None
    speedup = Estimate(
        value=found.value,
        low=found.low,
        high=found.high,
        n=found.n,
        unit="x",
        evidence=Evidence.STEPS,
    )
    rows = zip(names, block_of.tolist(), tokens.tolist(), plain, spec, strict=True)
    return Curve(
        key=ArmKey(cell=CELL, point_id=name),
        category="all",
        accept_length=speedup,
        survival=(),
        speedup=speedup,
        output_tok_s=None,
        lossless="exact",
        invalid=(),
        units=tuple(
            Unit(workload="w", prompt=one, tokens=int(n), steps=int(count))
            for one, n, count in zip(names, tokens, steps, strict=True)
        ),
        timings=tuple(
            Timing(
                workload="w",
                prompt=one,
                block=block,
                plain_ns=int(plain_ns),
                plain_tokens=n,
                spec_ns=int(spec_ns),
                spec_tokens=n,
            )
            for one, block, n, plain_ns, spec_ns in rows
        ),
    )


def found_worse(
    seeds: Sequence[int],
    *,
    machine: Machine,
    prompts: int,
    arms: int,
    blocks: int,
    slower: float = 0.0,
) -> float:
    """Share of simulated pairs in which compare says worse, at a margin of 0."""
    hits = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        lengths = rng.gamma(8, 0.25, prompts) + 1
        base = run(rng, machine, 1 / lengths, arms=arms, blocks=blocks)
        head = run(rng, machine, 1 / lengths, arms=arms, blocks=blocks, slower=slower)
        hits += compare(base, head, (), margin=0.0).change is Change.WORSE
    return hits / len(seeds)


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--rows", type=int, nargs="*", default=range(len(ROWS)))
    given = parser.parse_args()
    print("prompts blocks arms  block noise   A/A worse   5 % slower   10 % slower")
    for prompts, blocks, arms, block in (ROWS[row] for row in given.rows):
        shares = [
            found_worse(
                range(given.simulations),
                machine=Machine(block=block),
                prompts=prompts,
                arms=arms,
                blocks=blocks,
                slower=slower,
            )
            for slower in SLOWER
        ]
        shown = "   ".join(f"{share:10.1%}" for share in shares)
        print(f"{prompts:7d} {blocks:6d} {arms:4d} {block:12.2f}   {shown}", flush=True)


if __name__ == "__main__":
    main()

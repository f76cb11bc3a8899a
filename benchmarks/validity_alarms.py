"""How often each validity rule fires on runs that have nothing wrong: its false-alarm share.

Usage: ``python -m benchmarks.validity_alarms [--simulations 1000] [--seed 1] [--runs DIR ...]``

A simulated run has a plain arm, its second one and a chain of 3, in two interleaved blocks of 15
prompts. Outputs are Zipf text that differs between prompts; acceptance is geometric with a chance
that varies by prompt; a step's time carries noise of its own and of its request, 3 % of the
requests are slow and 1 forward in 500 takes three times as long. ``--runs`` adds ordinary run
directories, one arm counting as one run.
Notes on what was counted or timed (too few steps, no difference shown, a machine that changed its
speed) are facts and no alarms; how often they are said is printed apart.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specbench.conclude import summary_input
from specbench.config import SpecConfig
from specbench.metrics.best import invalid_code
from specbench.metrics.figures import ArmResult
from specbench.metrics.stats import wilson
from specbench.metrics.summary import SummaryInput, summarise
from specbench.request import Message, Request, SamplingParams
from specbench.store import RunDir
from specbench.trace import ArmRun, Chunk, Evidence, Finish, RequestTrace, StepTrace, Usage

POINTS = {
    "base": SpecConfig.baseline(),
    "k3": SpecConfig.chain(3),
    "base-again": SpecConfig.baseline(),
}
FEW_BLOCKS = "few_blocks"
# Said of what was counted or timed, and true whenever said: no alarm (docs/validity.md).
FACTS = frozenset(
    {
        "too_few_requests",
        "too_few_steps",
        "no_difference",
        "within_noise_floor",
        "step_time_varied",
        "length_capped",
        "decomposition_disagrees",
        FEW_BLOCKS,
    }
)
PROMPTS = 30
BLOCKS = 2
MOST_TOKENS = 512


def simulated(generator: np.random.Generator) -> SummaryInput:
    """One healthy run."""
    lengths = np.clip(generator.lognormal(4.0, 0.5, PROMPTS).round(), 24, MOST_TOKENS - 1)
    chances = np.clip(generator.normal(0.7, 0.1, PROMPTS), 0.2, 0.95)
    ids = [generator.zipf(1.3, int(n)) % 4000 for n in lengths]
    runs = []
    for block in range(BLOCKS):
        part = range(block * PROMPTS // BLOCKS, (block + 1) * PROMPTS // BLOCKS)
        for point, spec in POINTS.items():
            clock, traces, number = 0, [], 0
            for prompt in part:
                trace = _request(
                    generator, spec, prompt, ids[prompt], float(chances[prompt]), clock, number
                )
                clock, number = trace.end_ns, number + len(trace.steps)
                traces.append(trace)
            runs.append(_block(point, block, clock, traces))
    return SummaryInput(runs=tuple(runs), points=POINTS, backend="simulated", target="t", draft="d")


def _block(point: str, block: int, wall_ns: int, traces: list[RequestTrace]) -> ArmRun:
    return ArmRun(
        point_id=point,
        workload="simulated",
        batch_size=1,
        temperature=0.0,
        block=block,
        started_ns=0,
        wall_ns=wall_ns,
        requests=tuple(traces),
    )


def _request(
    generator: np.random.Generator,
    spec: SpecConfig,
    prompt: int,
    ids: npt.NDArray[np.int64],
    chance: float,
    clock: int,
    number: int,
) -> RequestTrace:
    shared = float(np.exp(generator.normal(0, 0.05)))
    if generator.random() < 0.03:
        shared *= 1 + float(generator.exponential(0.3))
    now = clock + round(12e6 * shared)
    chunks, made = [Chunk(at_ns=now, tokens=1, text="w ")], 1
    steps: list[StepTrace] = []
    while made < len(ids):
        kept = 0
        while kept < spec.num_steps and generator.random() < chance:
            kept += 1
        ns = 9e6 * (1 + 0.2 * spec.num_steps) * shared * np.exp(generator.normal(0, 0.1))
        ns = round(ns * (3 if generator.random() < 0.002 else 1))
        emitted = min(kept + 1, len(ids) - made)
        steps.append(
            StepTrace(
                batch_step=number + len(steps),
                batch=1,
                committed=20 + made,
                drafted=spec.num_steps,
                depth=spec.num_steps,
                accepted=kept,
                emitted=emitted,
                verify_ns=ns,
            )
        )
        now, made = now + ns, made + emitted
        chunks.append(Chunk(at_ns=now, tokens=emitted, text="w " * emitted))
    return RequestTrace(
        request=_asked(prompt),
        due_ns=clock,
        sent_ns=clock,
        end_ns=now,
        chunks=tuple(chunks),
        steps=tuple(steps),
        finish=Finish.STOP,
        evidence=Evidence.STEPS,
        usage=Usage(completion_tokens=len(ids)),
        output_ids=tuple(int(token) for token in ids),
    )


def _asked(prompt: int) -> Request:
    return Request(
        request_id=f"p{prompt}",
        prompt_id=f"p{prompt}",
        workload="simulated",
        messages=(Message(role="user", content=f"question {prompt}"),),
        sampling=SamplingParams(max_tokens=MOST_TOKENS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Arms on which each code was said, arms in all, and arms that were barred from winning."""

    said: Counter[str]
    arms: int
    barred: int

    @property
    def alarms(self) -> Counter[str]:
        """Codes that are no facts: on a run with nothing wrong each of these is false."""
        return Counter({code: hits for code, hits in self.said.items() if code not in FACTS})


def tally(arms: Iterable[ArmResult]) -> Tally:
    """Count the codes of ``arms``, each once an arm."""
    said: Counter[str] = Counter()
    count = barred = 0
    for arm in arms:
        count += 1
        barred += invalid_code(arm) is not None
        said.update({caveat.code for caveat in arm.caveats})
    return Tally(said=said, arms=count, barred=barred)


def _show(title: str, seen: Tally) -> None:
    print(f"{title}: {seen.arms} arms, {seen.barred} barred from winning")
    for code, hits in seen.alarms.most_common():
        print(f"  {code:24} {hits:6}  {100 * hits / seen.arms:6.2f} %  ({_most(hits, seen.arms)})")
    print(f"  no other rule fired (each {_most(0, seen.arms)})")
    facts = (f"{code} {hits}" for code, hits in seen.said.most_common() if code in FACTS)
    print(f"  facts: {', '.join(facts) or 'none'}")


def _most(hits: int, count: int) -> str:
    share = wilson(hits, count)
    return f"up to {100 * share.high:.2f} %" if share and share.high is not None else "no bound"


def main() -> None:
    """Print the table of simulated runs, and of the run directories that are given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", nargs="*", type=Path, default=[])
    args = parser.parse_args()
    generator = np.random.default_rng(args.seed)
    if args.simulations:
        arms = (a for _ in range(args.simulations) for a in summarise(simulated(generator)).arms)
        _show("simulated", tally(arms))
    if args.runs:
        kept: dict[bool, list[ArmResult]] = {False: [], True: []}
        for path in args.runs:
            with RunDir.open(path) as run_dir:
                summary = summarise(summary_input(run_dir))
            for best in summary.bests:
                arms_of = summary.of_cell(best.cell)
                kept[any(c.code == FEW_BLOCKS for a in arms_of for c in a.caveats)] += arms_of
        for few, title in ((False, "run directories, 5 blocks or more"), (True, "fewer blocks")):
            if kept[few]:
                _show(title, tally(kept[few]))


if __name__ == "__main__":
    main()

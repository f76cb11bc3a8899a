"""Parity probes: two ways through the engine that must agree, and the module that each accuses.

====================  ==========================================  ==============================
probe                 two ways                                    a disagreement accuses
====================  ==========================================  ==============================
``speculation``       greedy tokens with and without drafts       verify, commit
``graphs``            regions replayed, and run eagerly           static buffers, captured ids
``tree``              a tree, and each of its chains alone        masks, parents, positions
``cache``             both caches after steps, and a fresh        keep, compaction, extend
                      prefill of the same tokens
``chunks``            a prompt in chunks, and whole               the border row of a chunk
``prefix``            a prompt on a reused prefix, and cold       the border row of the reuse
``batch``             requests together, padded, and alone        lanes, padding
``ranks``             several ranks, and one                      shards, reductions
====================  ==========================================  ==============================

A run that two probes share is made once, and the first of them pays for it.

Engine-spec 10.3 (2 and 4) sends "offline right, engine wrong" here; invariants I1 to I5 of 13.2
are what holds when all agree. Both ways of a probe are built by one builder, so a wire that is
wrong in both is not seen here but by the probe of the wiring.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from specbench.doctor.findings import Finding
from specbench.doctor.parity_ranks import probe_ranks
from specbench.doctor.parity_result import Parity, Where
from specbench.doctor.parity_rows import probe_cache, probe_chunks, probe_prefix
from specbench.doctor.parity_setup import Build
from specbench.doctor.parity_texts import parity_texts
from specbench.doctor.parity_tree import probe_tree
from specbench.doctor.parity_watch import Runs
from specbench.doctor.parity_ways import probe_batch, probe_graphs, probe_speculation
from specbench.engine.pair import ModelPair
from specbench.errors import ConfigError, RequestError, RunError
from specbench.request import Request

if TYPE_CHECKING:
    from specbench.engine.parallel_lead import LeadEngine

Probe = Callable[[Runs], Parity]
PROBES: dict[str, Probe] = {
    "speculation": probe_speculation,
    "graphs": probe_graphs,
    "tree": probe_tree,
    "cache": probe_cache,
    "chunks": probe_chunks,
    "prefix": probe_prefix,
    "batch": probe_batch,
}
NAMES = (*PROBES, "ranks")
MOST_TOLD = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReport:
    """What all probes found: ``findings`` of severity error, and a line for each that agrees or was
    not run, in ``confirmed``."""

    results: tuple[Parity, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Disagreements, in the order run."""
        made = (result.finding() for result in self.results)
        return tuple(finding for finding in made if finding is not None)

    @property
    def confirmed(self) -> tuple[str, ...]:
        """A line for every other probe."""
        return tuple(result.line() for result in self.results if result.first is None)


def parity_findings(
    pair: ModelPair,
    build: Build,
    requests: Sequence[Request],
    *,
    names: Sequence[str] = NAMES,
    ranks: LeadEngine | None = None,
) -> ParityReport:
    """Run parity probes on a pair's engine.

    Args:
        pair: the loaded models; float32 or wider, since bfloat16 rounds differently by shape.
        build: makes the engines (``parity_setup.engines``; its ``change`` injects a fault).
        requests: prompts; a few short ones do (``parity_texts.MOST_PROMPTS`` are taken, each cut
            to ``MOST_TOKENS``). How they are sampled is not looked at: everything is greedy.
        names: which probes.
        ranks: an engine of several ranks on the same pair, to hold against one (made with
            ``keep_hashes``); None leaves that probe out and says so.

    Raises:
        ConfigError: an unknown name, or a pair without a draft.
        WorkloadError: no prompt has enough tokens.
    """
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ConfigError(f"parity probe {unknown[0]!r}.", expected=f"Of {', '.join(NAMES)}.")
    if pair.draft is None:
        raise ConfigError("parity probes need a draft.", todo="Give --draft.")
    runs = Runs(build, parity_texts(pair, requests))
    results = []
    with torch.inference_mode():
        for name in names:
            begun = time.perf_counter()
            try:
                result = probe_ranks(runs, ranks) if name == "ranks" else PROBES[name](runs)
            except (torch.OutOfMemoryError, RequestError):
                raise
            except (RunError, RuntimeError) as error:
                result = _broken(name, error)
            results.append(replace(result, cost_s=time.perf_counter() - begun))
    return ParityReport(results=tuple(results))


def _broken(name: str, error: Exception) -> Parity:
    """One of two ways does not run at all, which is a disagreement as well."""
    what = f"one of the two ways breaks: {str(error).splitlines()[0][:MOST_TOLD]}"
    where = Where(request="unknown", step=0, position=0, what=what)
    return Parity(name=name, compared="until it broke", first=where)

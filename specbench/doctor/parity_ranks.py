"""The ranks probe: a tensor-parallel engine against one rank (engine-spec 9, F18, F34 to F36)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbench.doctor.parity_compare import Comparison
from specbench.doctor.parity_result import Parity
from specbench.doctor.parity_setup import CHAIN, Setup
from specbench.doctor.parity_watch import Runs, run
from specbench.engine.parallel_check import RankDisagreement

if TYPE_CHECKING:
    from specbench.engine.parallel_lead import LeadEngine


def probe_ranks(runs: Runs, lead: LeadEngine | None) -> Parity:
    """Steps and features of an engine of several ranks against one rank's, then its ranks against
    each other: a hash of what each committed in every cycle, and the features of a text.

    Args:
        runs: of one rank.
        lead: the other, made with ``keep_hashes`` on the same pair; None when there is none.
    """
    if lead is None:
        return Parity(name="ranks", compared="", not_run="one rank")
    texts, requests = runs.texts, runs.texts.requests()
    same = Comparison(texts.pair, shards=True)
    one = runs.run(Setup(spec=CHAIN, max_len=texts.max_len), requests)
    try:
        lead.configure(CHAIN, 1)
        same.compare_steps(run(lead, requests), one)
        hashes, features = lead.hashes(), lead.features(max(texts.prompts.values(), key=len))
    except RankDisagreement as error:
        same.differ(error.request, error.cycle, 0, str(error))
        return same.parity("ranks", "until the ranks parted")
    first, whole = hashes[0], features[0]
    for rank, own in hashes.items():
        if own != first:
            pairs = zip(own, first, strict=False)
            cycle = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(own), len(first)))
            same.differ("all", cycle, 0, f"rank {rank} committed other tokens than rank 0")
    for rank, rows in features.items():
        what = f"features of rank {rank}"
        same.compare_rows(rows[None], whole[None], "the longest prompt", 0, 0, what)
    return same.parity("ranks", f"{len(hashes)} ranks against one, {len(first)} hashes each")

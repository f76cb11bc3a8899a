"""The shipped pair at a temperature draws the same tokens with drafts as without them.

400 seeds of one prompt, three tokens, against 400 other seeds of plain decoding. A rule that is
lossy by its settings is found out by the same test, so it can see what it looks for.
benchmarks/losslessness_sampled.py does this with more of everything.
"""

from __future__ import annotations

from benchmarks.losslessness_sampled import ARMS, compare, draws
from specbench.config import SpecConfig
from specbench.request import Request, SamplingParams
from specbench.verification import VerifyRules

SEEDS = 400
SAMPLING = SamplingParams(temperature=0.8, top_k=4, max_tokens=3, ignore_eos=True)
ASKED = [Request(request_id="the", prompt="The", sampling=SAMPLING)]


def test_drafts_do_not_change_what_is_drawn_and_lossy_ones_do() -> None:
    plain = draws(SpecConfig.baseline(), VerifyRules(), ASKED, SEEDS, 0)["the"]
    for number, name in enumerate(("target_only tree", "rejection k3", "block k3"), 1):
        spec, rules = ARMS[name]
        found = compare(plain, draws(spec, rules, ASKED, SEEDS, number * SEEDS)["the"])
        assert found.cells > 10
        assert found.p > 1e-4, name
    spec, rules = ARMS["LOSSY threshold_acc=0.25"]
    found = compare(plain, draws(spec, rules, ASKED, SEEDS, 4 * SEEDS)["the"])
    assert found.p < 1e-8

"""A part of the zoo, examined by the whole doctor: the right cause comes first.

The target's text is captured once for all. ``benchmarks/doctor_zoo.py`` runs the rest.
"""

from __future__ import annotations

import pytest

from specbench.doctor.findings import Severity
from specbench.doctor.zoo import every_fault
from specbench.doctor.zoo_run import Bench, Examined
from specbench.request import SamplingParams
from specbench.workload import load_workload

REQUESTS, TOKENS = 14, 20
PARITY = ("tree", "cache", "chunks")
ZOO = {fault.name: fault for fault in every_fault()}
SERVED = (
    "capture_plus_one",
    "graph_default",
    "lost_stages",
    "stale_features",
    "zero_map",
    "decode_shift",
    "chunk_border",
    "no_extend",
    "siblings_seen",
)
PROBED = ("norm_output_set", "vocab_poor")


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    requests = load_workload("default").requests(REQUESTS, SamplingParams(max_tokens=TOKENS))
    return Bench(tmp_path_factory.mktemp("zoo"), requests, parity=PARITY, budget=40)


@pytest.fixture(scope="session")
def sound(bench: Bench) -> Examined:
    return bench.examine_sound()


def test_the_sound_pair_is_not_accused(sound: Examined) -> None:
    assert [f for f in sound.findings if f.severity is not Severity.NOTE] == []
    assert sound.served is not None
    assert sound.served.agreement == 1.0
    assert sound.served.outputs_equal == 1.0


@pytest.mark.parametrize("name", [*SERVED, *PROBED])
def test_the_right_cause_comes_first(bench: Bench, sound: Examined, name: str) -> None:
    seen = bench.examine(ZOO[name])
    assert not seen.stopped
    assert ZOO[name].place(seen.findings) == 1, [(f.code, f.title) for f in seen.findings]

"""What a sweep is asked: checked, written to run.json and read back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from specbench.config import Arrival, LoadConfig
from specbench.errors import ConfigError
from specbench.sweep_spec import SweepSpec

SPEC = SweepSpec(num_steps=(0, 1, 3), topk=(1, 2), num_draft_tokens=(8,), requests=6, blocks=3)


def test_a_run_from_before_waves_keeps_its_blocks() -> None:
    before = {k: v for k, v in SPEC.to_json().items() if k not in ("waves", "baseline_server")}
    assert SweepSpec.from_json(before, source="run.json") == SPEC


def test_a_spec_survives_json() -> None:
    text = json.dumps(SPEC.to_json())
    assert SweepSpec.from_json(json.loads(text), source="x") == SPEC


@pytest.mark.parametrize(
    "bad",
    [
        {"requests": 0},
        {"blocks": 0},
        {"requests": 2, "blocks": 3},
        {"batch_sizes": ()},
        {"batch_sizes": (0,)},
        {"temperatures": (-1.0,)},
        {"workloads": ()},
    ],
)
def test_impossible_specs_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SweepSpec(**bad)


def test_a_grid_of_which_nothing_is_legal_is_refused() -> None:
    spec = SweepSpec(num_steps=(3,), topk=(4,), num_draft_tokens=(38,))
    with pytest.raises(ConfigError, match=r"No point .* num_draft_tokens=38"):
        spec.grid()


def test_the_mean_rate_of_a_trace_is_no_part_of_what_was_asked() -> None:
    asked = dataclasses.replace(SPEC, load=LoadConfig(arrival=Arrival.TRACE))
    rate = dataclasses.replace(asked, load=LoadConfig(arrival=Arrival.TRACE, request_rate=3.0))
    assert rate.as_asked == asked
    drawn = dataclasses.replace(SPEC, load=LoadConfig(request_rate=3.0))
    assert drawn.as_asked == drawn

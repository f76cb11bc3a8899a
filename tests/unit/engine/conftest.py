"""The tiny pair and its draft as the probe takes them, for the tests that score on stored text."""

from __future__ import annotations

import pytest

from specbench.engine.pair import ModelPair
from specbench.engine.probe_draft import ProbeDraft
from tests.drive import new_engine
from tests.tiny import shared_pair


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return new_engine().pair


@pytest.fixture(scope="module")
def draft(pair: ModelPair) -> ProbeDraft:
    return ProbeDraft.load(pair, shared_pair().draft)

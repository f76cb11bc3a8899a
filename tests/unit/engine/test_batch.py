"""Static inputs and totals."""

from __future__ import annotations

import random

import torch

from specbench.engine.batch import BatchInputs, Sequence, new_chooser
from specbench.engine.text import TextCodec, TextStream
from tests.drive import new_request
from tests.tiny import shared_pair

CODEC = TextCodec(shared_pair().target)


def sequence(committed: int, last: int) -> Sequence:
    request = new_request("r", [1], seed=4)
    return Sequence(
        handle=0,
        request=request,
        prompt=(1,) * committed,
        stop_ids=frozenset(),
        text=TextStream(CODEC, ()),
        chooser=new_chooser(request),
        output=[last],
        committed=committed,
    )


def test_inputs_keep_their_addresses() -> None:
    inputs = BatchInputs(3, torch.device("cpu"))
    first = inputs.batch([sequence(5, 50), sequence(7, 70)])
    assert first.start_tensor.tolist() == [5, 7]
    assert first.roots.tolist() == [50, 70]
    second = inputs.batch([sequence(6, 60), sequence(8, 80)])
    assert second.roots.tolist() == [60, 80]
    assert first.roots.data_ptr() == second.roots.data_ptr()


def test_exact_and_fixed_lengths() -> None:
    pair = [sequence(5, 50), sequence(7, 70)]
    exact = BatchInputs(2, torch.device("cpu")).batch(pair)
    assert (exact.length(3), exact.fixed, exact.single) == (10, False, False)
    fixed = BatchInputs(2, torch.device("cpu"), columns=64).batch(pair[:1])
    assert (fixed.length(3), fixed.fixed, fixed.single) == (64, True, False)
    assert BatchInputs(2, torch.device("cpu")).batch(pair[:1]).single


def test_usage_counts_steps_by_accepted_drafts() -> None:
    running = sequence(4, 1)
    for accepted in (2, 0, 2):
        running.count(3, accepted)
    usage = running.usage()
    assert usage.histogram == (1, 0, 2)
    assert (usage.drafted, usage.accepted, usage.verify_steps) == (9, 4, 3)
    assert (usage.prompt_tokens, usage.completion_tokens) == (4, 1)


def test_coins_follow_the_seed() -> None:
    assert sequence(1, 1).chooser.coins.random() == random.Random(4).random()

"""One forward over a tree gives what a forward over each path gives."""

from __future__ import annotations

import pytest
import torch

from specbench.config import SpecConfig
from specbench.engine.batch import BatchInputs
from specbench.engine.runner import PREFILL_ROWS, chunks
from tests.drive import new_engine, new_request, prompts
from tests.reference import Reference
from tests.tiny import shared_pair


@pytest.mark.parametrize("batch_size", [1, 2])
def test_every_node_scores_as_the_end_of_its_own_chain(batch_size: int) -> None:
    reference = Reference(shared_pair())
    engine = new_engine()
    engine.configure(SpecConfig(num_steps=3, topk=3, num_draft_tokens=12), batch_size)
    for i, prompt in enumerate(prompts(batch_size)):
        engine.submit(new_request(f"r{i}", prompt))
    for _ in range(batch_size):
        engine.step()
    with torch.inference_mode():
        batch = BatchInputs(4, engine.pair.device).batch(engine.scheduler.running)
        tree = engine.drafter.propose(batch)
        scores = engine.runner.verify(batch, tree)
    for lane, sequence in enumerate(batch.sequences):
        nodes, parents = tree.tokens[lane].tolist(), tree.parents[lane].tolist()
        committed = [*sequence.prompt, *sequence.output[:-1]]
        for node in range(12):
            path, up = [nodes[node]], parents[node]
            while up >= 0:
                path.insert(0, nodes[up])
                up = parents[up]
            logits, stream = reference.target([*committed, *path])
            row = lane * 12 + node
            torch.testing.assert_close(scores.logits[row], logits[-1])
            expected = torch.cat([stream[k][-1] for k in (1, 2, 3)])
            torch.testing.assert_close(scores.features[row], expected)


def test_chunks_cover_the_prompt_once() -> None:
    prompt = list(range(PREFILL_ROWS * 2 + 5))
    parts = chunks(prompt)
    assert [start for start, _, _ in parts] == [0, PREFILL_ROWS, 2 * PREFILL_ROWS]
    assert [t for _, tokens, _ in parts for t in tokens] == prompt
    assert [last for _, _, last in parts] == [False, False, True]
    assert chunks([1]) == [(0, [1], True)]

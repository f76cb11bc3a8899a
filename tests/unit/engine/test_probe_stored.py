"""Features of others are scored by what their values are, and refused when they are another's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specbench.engine.pair import ModelPair
from specbench.engine.probe import ProbeResult, probe, probe_stored
from specbench.engine.probe_capture import Capture, capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_files import RawText
from specbench.engine.probe_stored import reply_samples
from specbench.engine.probe_text import Sample, greedy_texts
from specbench.engine.wiring import Tap
from specbench.errors import WorkloadError
from specbench.request import Request
from tests.drive import new_engine, new_request, prompts
from tests.tiny import shared_pair

WIRED = (1, 2, 3)
STEPS = 2  # from so many on, a file without tokens past the reply gives fewer positions
COUNTS = ("positions", "known", "hits", "alive", "starts")


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return [new_request(f"r{i}", p, max_tokens=15 + 3 * i) for i, p in enumerate(prompts(4))]


@pytest.fixture(scope="module")
def captured(pair: ModelPair, requests: list[Request]) -> Capture:
    return capture(pair, greedy_texts(pair, requests, past=0))


def tensors(captured: Capture, text: int, layers: tuple[int, ...] = WIRED) -> dict[str, Tensor]:
    """One greedy text as speculators store it."""
    first, end = captured.spans()[text]
    sample = captured.samples[text]
    states = [captured.features[Tap.RESIDUAL, k][first:end] for k in (*layers, 4)]
    mask = torch.zeros(end - first, dtype=torch.int64)
    mask[sample.prompt_len : sample.prompt_len + sample.output_len] = 1
    return {
        "input_ids": torch.tensor(sample.tokens),
        "loss_mask": mask,
        "hidden_states": torch.stack(states, 1),
    }


def scored(
    pair: ModelPair, draft: ProbeDraft, folder: Path, *texts: dict[str, Tensor], **asked: int
) -> ProbeResult:
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(texts):
        save_file(one, folder / f"hs_{number}.safetensors")
    bounds: dict[str, Any] = {"steps": STEPS, "positions": 10_000, "requests": 100, **asked}
    return probe_stored(pair, draft, folder, **bounds)


def test_greedy_text_of_others_counts_as_our_own(
    pair: ModelPair, draft: ProbeDraft, requests: list[Request], captured: Capture, tmp_path: Path
) -> None:
    live = probe(pair, draft, requests, steps=STEPS, positions=10_000)
    texts = [tensors(captured, i) for i in range(4)]
    found = scored(pair, draft, tmp_path, *texts)
    assert [r.request_id for r in found.replies] == [f"hs_{i}.safetensors" for i in range(4)]
    for mine, theirs in zip(found.replies, live.replies, strict=True):
        assert [getattr(mine, c) for c in COUNTS] == [getattr(theirs, c) for c in COUNTS]
        assert mine.verify_steps == 0 < theirs.verify_steps  # nothing says that it is greedy
    assert not found.own_text
    assert found.notes[-1].startswith("100.0% of the reply tokens are the target's own choice")


def test_half_precision_scores_the_same_choices(
    pair: ModelPair, draft: ProbeDraft, captured: Capture, tmp_path: Path
) -> None:
    exact = tensors(captured, 3)
    rounded = exact | {"hidden_states": exact["hidden_states"].to(torch.bfloat16)}
    one, other = (scored(pair, draft, tmp_path / n, t) for n, t in (("a", exact), ("b", rounded)))
    assert abs(one.replies[0].hits[0] - other.replies[0].hits[0]) <= 1
    assert "differs by 0.1" in other.notes[0]  # bfloat16's rounding, and nothing more


def test_survival_counts_only_starts_whose_text_goes_on_as_the_target_would(
    pair: ModelPair, draft: ProbeDraft, captured: Capture, tmp_path: Path
) -> None:
    sample = captured.samples[3]
    tokens = list(sample.tokens)
    for place in range(sample.prompt_len + 3, len(tokens), 4):
        tokens[place] = (tokens[place] + 1) % 250
    other = capture(pair, [dataclasses.replace(sample, tokens=tuple(tokens))])
    (reply,) = scored(pair, draft, tmp_path, tensors(other, 0), steps=3).replies
    assert reply.starts[0] == reply.positions
    follows = (other.best[:-1] == other.tokens[1:]).tolist()
    begin = sample.prompt_len - 1
    rows = range(begin, begin + reply.positions)
    assert reply.starts[1] == sum(follows[row + 1] for row in rows) < reply.positions
    assert reply.starts[2] == sum(follows[row + 1] and follows[row + 2] for row in rows)
    assert all(a <= s for a, s in zip(reply.alive, reply.starts, strict=True))
    assert reply.alive[0] > 0


def test_replies_of_a_conversation_are_one_cluster(
    pair: ModelPair, draft: ProbeDraft, captured: Capture, tmp_path: Path
) -> None:
    whole = tensors(captured, 3)
    mask = whole["loss_mask"]
    length = len(mask)
    first, second = mask.clone(), mask.clone()
    first[length - 12 :] = 0
    second[: length - 9] = 0
    parts = [scored(pair, draft, tmp_path / n, whole | {"loss_mask": m}).replies[0]
             for n, m in (("a", first), ("b", second))]  # fmt: skip
    (both,) = scored(pair, draft, tmp_path / "c", whole | {"loss_mask": first + second}).replies
    assert both.positions == sum(p.positions for p in parts)
    for name in ("hits", "known", "alive"):
        columns = zip(*(getattr(part, name) for part in parts), strict=True)
        assert getattr(both, name) == tuple(map(sum, columns))


def raw(mask: list[int] | None, count: int = 12) -> RawText:
    states = torch.zeros(count, 1)
    told = None if mask is None else tuple(map(bool, mask))
    return RawText(
        where="x", tokens=tuple(range(count)), mask=told, streams=(), layers=None, last=states,
        normed=None,
    )  # fmt: skip


def spans(samples: list[Sample]) -> list[tuple[int, int, int]]:
    return [(s.prompt_len, s.output_len, len(s.tokens)) for s in samples]


def test_the_replies_that_a_mask_marks() -> None:
    mask = [0, 0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1]
    assert spans(list(reply_samples(raw(mask), 1))) == [(2, 4, 6), (7, 2, 9), (10, 2, 12)]
    assert spans(list(reply_samples(raw(mask), 4))) == [(2, 2, 6), (7, 0, 9), (10, 0, 12)]
    assert spans(list(reply_samples(raw([1] * 12), 2))) == [(1, 11, 12)]
    assert spans(list(reply_samples(raw(None), 2))) == [(1, 11, 12)]
    assert spans(list(reply_samples(raw([0] * 12), 2))) == []


def test_text_without_a_mask_says_so(
    pair: ModelPair, draft: ProbeDraft, captured: Capture, tmp_path: Path
) -> None:
    found = tensors(captured, 2)
    del found["loss_mask"]
    notes = scored(pair, draft, tmp_path, found).notes
    assert "no loss mask is stored, so every token counts as reply" in notes


def changed(captured: Capture, **changes: Tensor) -> dict[str, Tensor]:
    return {**tensors(captured, 3), **changes}


def swapped(captured: Capture) -> dict[str, Tensor]:
    states = tensors(captured, 3)["hidden_states"][:, [0, 2, 1, 3]]
    return changed(captured, hidden_states=states.contiguous())


def normed_feature(captured: Capture) -> dict[str, Tensor]:
    """F55: the last layer as Hugging Face hands it out, taken for a feature."""
    first, end = captured.spans()[3]
    states = tensors(captured, 3)["hidden_states"].clone()
    states[:, 2] = captured.normed[first:end]
    return changed(captured, hidden_states=states)


def wrong_last(captured: Capture) -> dict[str, Tensor]:
    return changed(captured, hidden_states=tensors(captured, 3)["hidden_states"][:, [0, 1, 2, 0]])


def one_less(captured: Capture) -> dict[str, Tensor]:
    return changed(captured, hidden_states=tensors(captured, 3)["hidden_states"][:, 1:].clone())


def narrow(captured: Capture) -> dict[str, Tensor]:
    return changed(captured, hidden_states=tensors(captured, 3)["hidden_states"][..., 1:].clone())


def foreign_ids(captured: Capture) -> dict[str, Tensor]:
    ids = tensors(captured, 3)["input_ids"].clone()
    ids[5] = 288
    return changed(captured, input_ids=ids)


def shifted(captured: Capture) -> dict[str, Tensor]:
    return changed(captured, input_ids=tensors(captured, 3)["input_ids"].roll(-1))


def masked_away(captured: Capture) -> dict[str, Tensor]:
    return changed(captured, loss_mask=tensors(captured, 3)["loss_mask"] * 0)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (swapped, r"stream 1 is physical layer 3 \(differs by 0\.00%\), the draft takes physical "
         r"layer 2 there \(\d+\.\d%\)"),
        (normed_feature, r"stream 2 is physical layer 4 after the final norm \(differs by 0\.00%"),
        (wrong_last, r"the last state is not this target's \(RMS .* the nearest is physical "
         r"layer 1, which differs by 0\.00%"),
        (one_less, r"holds 2 streams beside the last state, the draft takes 3: physical layers "
         r"\[1, 2, 3\]"),
        (narrow, r"stream 0 has shape \[\d+, 63\], the target's width is 64"),
        (foreign_ids, r"holds token 288\. The target's ids, 0\.\.287"),
        (shifted, "stream 0 is no layer of this target"),
        (masked_away, "none of 1 texts has a reply of 2 tokens, and 0 were left out"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)  # fmt: skip
def test_what_is_not_these_two_models(
    pair: ModelPair, draft: ProbeDraft, captured: Capture, tmp_path: Path, broken: Any, said: str
) -> None:
    with pytest.raises(WorkloadError, match=said):
        scored(pair, draft, tmp_path, broken(captured))


def test_features_of_another_target(
    pair: ModelPair, draft: ProbeDraft, captured: Capture, tmp_path: Path
) -> None:
    other = new_engine(shared_pair(seed=5)).pair
    theirs = capture(other, captured.samples)
    with pytest.raises(WorkloadError, match=r"no layer of this target: .* differs by \d+\.\d%"):
        scored(pair, draft, tmp_path, tensors(theirs, 3))


def test_a_normed_last_state_is_seen_by_its_size_and_scores_alike(
    pair: ModelPair, draft: ProbeDraft, captured: Capture, tmp_path: Path
) -> None:
    first, end = captured.spans()[3]
    plain = tensors(captured, 3)
    states = plain["hidden_states"].clone()
    states[:, 3] = captured.normed[first:end]
    found = [
        scored(pair, draft, tmp_path / name, text)
        for name, text in (("pre", plain), ("post", plain | {"hidden_states": states}))
    ]
    assert found[0].replies == found[1].replies
    assert "before the final norm" in found[0].notes[3]
    assert "after the final norm: RMS over the final norm's weight is 1.000" in found[1].notes[3]

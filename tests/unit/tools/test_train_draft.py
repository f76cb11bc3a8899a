"""Training a draft for a target folder: on a tiny random target, end to end, in seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from specbench.checkpoint import read_draft, read_target  # noqa: E402
from specbench.config import EngineConfig, SpecConfig  # noqa: E402
from specbench.engine.engine import Engine  # noqa: E402
from specbench.engine.pair import ModelPair  # noqa: E402
from specbench.errors import CheckpointError, ConfigError, WorkloadError  # noqa: E402
from specbench.request import Message, Request, SamplingParams  # noqa: E402
from tests.tiny import write_pair  # noqa: E402
from tools import train_draft  # noqa: E402
from tools.demo_pair.draft_loop import Course, Rows, batches, step_losses  # noqa: E402
from tools.demo_pair.model import Draft  # noqa: E402
from tools.draft_training.features import on_disk  # noqa: E402
from tools.draft_training.plan import Plan  # noqa: E402
from tools.draft_training.prompts import training_requests  # noqa: E402
from tools.draft_training.texts import load_target, read_texts, stage_texts  # noqa: E402
from tools.draft_training.train import draft_shape, target_weights  # noqa: E402

SAID = ("hello there", "one two three", "abc", "what now", "tell me")


def _prompts(path: Path, said: tuple[str, ...]) -> Path:
    rows = [{"id": f"p{i}", "category": "a", "turns": [text]} for i, text in enumerate(said)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, and the whole run of the tool on it."""
    place: Path = tmp_path_factory.mktemp("train")
    write_pair(place / "pair", seed=3)
    _prompts(place / "train.jsonl", SAID)
    _prompts(place / "held.jsonl", ("good morning", SAID[0]))
    assert train_draft.main(_arguments(place)) == 0
    return place


def _arguments(place: Path, *more: str) -> list[str]:
    sizes = (
        "--max-tokens 40 --shard 3 --batch 3 --draft-vocab 160 --steps 75 --rows 2 --ttt-steps 3"
    )
    sizes += " --greedy-share 1"
    probe = "--evaluate-requests 2 --evaluate-tokens 24 --evaluate-steps 3"
    return [
        *("--target", str(place / "pair" / "target"), "--out", str(place / "out")),
        *("--work", str(place / "work"), "--prompts", str(place / "train.jsonl")),
        *("--evaluate", str(place / "held.jsonl"), "--capture", "1,2,3"),
        *("--for", "sglang==0.5.23", *sizes.split(), *probe.split(), *more),
    ]


def _plan(place: Path, *more: str) -> Plan:
    return train_draft.make_plan(train_draft.parser().parse_args(_arguments(place, *more)))


def test_the_loss_falls(made: Path) -> None:
    losses = json.loads((made / "work" / "measured.json").read_text())["draft"]["losses"]
    assert len(losses) == 3
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.5 * losses[0]


def test_the_draft_speeds_up_the_text_it_was_trained_on(made: Path) -> None:
    config = EngineConfig(dtype="float32", max_len=128)
    pair = ModelPair.load(made / "pair" / "target", made / "out", config)
    engine = Engine(pair, config)
    engine.configure(SpecConfig.chain(3), 1)
    steps = accepted = 0
    for text in SAID[1:]:
        request = Request(
            request_id=text,
            messages=(Message(role="user", content=text),),
            sampling=SamplingParams(max_tokens=40, ignore_eos=True),
        )
        engine.submit(request)
        while not engine.idle:
            for emission in engine.step():
                if emission.finish is not None:
                    steps += emission.usage.verify_steps or 0
                    accepted += emission.usage.accepted or 0
    assert 1 + accepted / steps > 1.5


def test_the_draft_names_its_physical_layers_and_whom_they_are_for(made: Path) -> None:
    target, _ = read_target(made / "pair" / "target")
    spec, folder = read_draft(made / "out", target)
    assert spec.capture_physical == (1, 2, 3)
    assert (spec.draft_vocab, spec.file_format) == (160, "specforge")
    assert "sglang==0.5.23" in json.dumps(folder.config)
    assert spec.rope.max_position == target.rope.max_position


def test_the_card_has_data_losses_and_the_probe(made: Path) -> None:
    card = (made / "out" / "README.md").read_text(encoding="utf-8")
    probe = json.loads((made / "out" / "probe.json").read_text())
    measured = json.loads((made / "work" / "measured.json").read_text())
    length = probe["groups"]["all"]["walk_accept_length"]["value"]
    assert "| all | 2 | " in card
    assert f"{length:.2f}" in card
    assert f"{measured['draft']['losses'][-1]:.3f}" in card
    assert "1 in the evaluation" in card
    assert f"{measured['texts']['tokens']} tokens" in card


def test_a_prompt_of_the_evaluation_is_never_trained_on(made: Path) -> None:
    plan = _plan(made)
    pair = load_target(plan)
    requests, facts = training_requests(plan, pair.codec)
    assert len(requests) == len(SAID) - 1
    assert SAID[0] not in [request.messages[-1].content for request in requests]
    assert facts["left_out"] == {"repeated": 0, "in the evaluation": 1, "too long": 0}
    only = _plan(made, "--prompts", str(made / "held.jsonl"), "--longest-prompt", "3")
    with pytest.raises(WorkloadError, match="no prompt to train on is left"):
        training_requests(only, pair.codec)


def test_texts_are_the_targets_own_and_go_on_behind_a_cut(made: Path, tmp_path: Path) -> None:
    whole = read_texts(_plan(made))
    lines = (made / "work" / "texts.jsonl").read_text().splitlines(keepends=True)
    plan = _plan(made, "--work", str(tmp_path))
    plan.path("texts.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    stage_texts(plan)
    assert read_texts(plan) == whole
    assert read_texts(_plan(made, "--replies", "2")) == whole[:2]


def test_training_goes_on_from_its_checkpoint_to_the_same_weights(
    made: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    for path in (made / "work").iterdir():
        if path.is_file() and path.name != "draft.safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert (tmp_path / "draft-part.safetensors").exists()  # of step 50
    train_draft.main(_arguments(made, "--work", str(tmp_path), "--stage", "draft"))
    again, first = (
        load_file(str(place / "draft.safetensors")) for place in (tmp_path, made / "work")
    )
    for name, value in first.items():
        torch.testing.assert_close(again[name], value, msg=name)
    losses = [
        json.loads((place / "measured.json").read_text())["draft"]["losses"]
        for place in (tmp_path, made / "work")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_captured_batches_equal_a_forward_of_the_training_model(made: Path) -> None:
    """The engine's streams, padded and read from disk, against transformers' hidden states."""
    transformers = pytest.importorskip("transformers")
    plan, folder = _plan(made), made / "pair" / "target"
    target, read = read_target(folder)
    weights, tokens = target_weights(read, target, 0), torch.arange(0, 100, 3)
    rows = on_disk(plan, (1, 2, 3), weights["head"], tokens)(torch.tensor([3, 0]))
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = read_texts(plan)
    for line, number in enumerate((3, 0)):
        size = len(texts[number].tokens)
        assert rows.ids[line, :size].tolist() == list(texts[number].tokens)
        assert rows.inside[line].nonzero()[:, 0].tolist() == list(
            range(texts[number].prompt_len, size)
        )
        with torch.no_grad():
            found = reference(rows.ids[line : line + 1, :size], output_hidden_states=True)
        wanted = torch.cat([found.hidden_states[k][0] for k in (1, 2, 3)], dim=-1)
        torch.testing.assert_close(rows.features[line, :size], wanted, atol=1e-4, rtol=0)
        goals = found.logits[0][:, tokens]
        torch.testing.assert_close(rows.goals[line, :size], goals, atol=1e-4, rtol=0)
        assert rows.best[line, :size].tolist() == found.logits[0].argmax(-1).tolist()


def test_padding_and_prompts_teach_nothing(made: Path) -> None:
    plan = _plan(made)
    target, _ = read_target(made / "pair" / "target")
    torch.manual_seed(0)
    shape = draft_shape(plan, target)
    draft, tokens = Draft(shape), torch.arange(160)
    size, width = 12, 3 * shape.hidden
    ids, inside = torch.randint(0, 160, (1, size)), torch.arange(size)[None] >= 5
    rows = Rows(
        ids=ids, inside=inside, features=torch.randn(1, size, width),
        goals=torch.randn(1, size, 160), best=torch.randint(0, 160, (1, size)),
    )  # fmt: skip
    longer = Rows(
        ids=torch.nn.functional.pad(rows.ids, (0, 4)),
        inside=torch.nn.functional.pad(rows.inside, (0, 4)),
        features=torch.nn.functional.pad(rows.features, (0, 0, 0, 4)),
        goals=torch.nn.functional.pad(rows.goals, (0, 0, 0, 4)),
        best=torch.nn.functional.pad(rows.best, (0, 4)),
    )
    embedding = torch.randn(shape.vocab, shape.hidden)
    plain, right = step_losses(draft, embedding, tokens, rows, 3)
    padded, also = step_losses(draft, embedding, tokens, longer, 3)
    torch.testing.assert_close(torch.stack(plain), torch.stack(padded))
    assert right == also
    nothing = replace(rows, inside=rows.inside & False)
    assert [x.item() for x in step_losses(draft, embedding, tokens, nothing, 3)[0]] == [0.0] * 3


def test_no_text_is_left_out_for_its_length() -> None:
    """An epoch that does not divide leaves out texts by chance, not the longest ones."""
    lengths = [10, 20, 30, 40, 50]
    course = Course(steps=40, rows=2, unroll=1, seed=1, saved=Path("none"), log=lambda line: None)
    taken = [i for _, numbers in batches(course, lengths, 0) for i in numbers.tolist()]
    assert min(taken.count(i) for i in range(5)) > 8


def test_batches_take_every_text_once_an_epoch_and_like_lengths_together() -> None:
    lengths = [10 * (i % 7) for i in range(96)]
    course = Course(steps=24, rows=4, unroll=1, seed=1, saved=Path("none"), log=lambda line: None)
    taken = [numbers.tolist() for _, numbers in batches(course, lengths, 0)]
    assert sorted(i for numbers in taken for i in numbers) == list(range(96))
    spread = [max(lengths[i] for i in n) - min(lengths[i] for i in n) for n in taken]
    assert sum(spread) < 24 * 10
    assert [n.tolist() for _, n in batches(course, lengths, 20)] == taken[20:]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--capture 3,1", "Ascending physical indices"),
        ("--capture 2,9", r"in 1\.\.4"),
        ("--draft-vocab 5000", "5000 of 288"),
    ],
)
def test_a_plan_that_does_not_fit_the_target_is_refused(
    made: Path, flags: str, message: str
) -> None:
    target, _ = read_target(made / "pair" / "target")
    with pytest.raises(ConfigError, match=message):
        draft_shape(_plan(made, *flags.split()), target)


def test_a_target_of_another_family_is_refused(made: Path) -> None:
    target, _ = read_target(made / "pair" / "target")
    other = replace(target, attention=replace(target.attention, qkv_bias=True))
    with pytest.raises(CheckpointError, match="beyond Llama's"):
        draft_shape(_plan(made), other)

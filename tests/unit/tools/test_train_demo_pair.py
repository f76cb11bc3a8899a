"""The training tool end to end at smoke size, and the pieces it is built from."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from safetensors.torch import load_file  # noqa: E402

from tools import train_demo_pair  # noqa: E402
from tools.demo_pair import generate, text  # noqa: E402
from tools.demo_pair.distil import renew_vocabulary  # noqa: E402
from tools.demo_pair.draft_loop import draft_tokens  # noqa: E402
from tools.demo_pair.evaluate import walk  # noqa: E402
from tools.demo_pair.export import load_pair  # noqa: E402
from tools.demo_pair.grow import grow, grown_shape  # noqa: E402
from tools.demo_pair.model import Draft, Shape, Target, rows_logits  # noqa: E402
from tools.demo_pair.optim import orthogonalise  # noqa: E402

TINY = Shape(
    vocab=50,
    hidden=16,
    layers=4,
    heads=2,
    kv_heads=1,
    head_dim=8,
    inner=24,
    capture=(1, 2, 3),
    draft_vocab=20,
)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("pair")
    given = ["--smoke", "--out", str(folder / "out"), "--work", str(folder / "work")]
    assert train_demo_pair.main([*given, "--threads", "1"]) == 0
    return folder


def test_smoke_run_writes_a_pair_with_cards(smoke: Path) -> None:
    for part in ("target", "draft"):
        assert (smoke / "out" / part / "model.safetensors").exists()
        assert (smoke / "out" / part / "README.md").read_text(encoding="utf-8").startswith("# Demo")
    rows = json.loads((smoke / "out" / "draft" / "evaluation.json").read_text())
    assert rows[0]["category"] == "all"
    assert rows[0]["accept_length"]["5"] >= 1.0


def test_smoke_pair_loads_back(smoke: Path) -> None:
    target, draft, tokens = load_pair(smoke / "out")
    assert target.shape.capture == (1, 2, 3)
    assert len(tokens) == draft.lm_head.weight.shape[0]


def test_a_later_stage_goes_on_from_what_an_earlier_one_left(smoke: Path, tmp_path: Path) -> None:
    tensors = load_file(str(smoke / "work" / "target-base.safetensors"))
    assert "embed_tokens.weight" in tensors
    arguments = ["--smoke", "--out", str(tmp_path), "--work", str(smoke / "work")]
    train_demo_pair.main([*arguments, "--stage", "export"])
    assert (tmp_path / "draft" / "config.json").exists()


def test_a_grown_target_says_at_first_what_the_old_one_says(smoke: Path) -> None:
    old, _, _ = load_pair(smoke / "out")
    new = grow(old, grown_shape(smoke / "out", 12))
    assert (len(new.layers), new.shape.capture) == (12, (3, 6, 9))
    ids = torch.randint(0, old.shape.vocab, (2, 17))
    torch.testing.assert_close(new(ids), old(ids))
    torch.testing.assert_close(new.hidden(ids)[1], old.hidden(ids)[1])


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("", 1.0),
        ("--grow {pair} --layers 8", 0.1),
        ("--grow {pair} --layers 8 --tune-rate 0.5", 0.5),
    ],
)
def test_a_grown_target_is_tuned_gently(smoke: Path, words: str, rate: float) -> None:
    given = ["--out", "out", "--work", "work", *words.format(pair=smoke / "out").split()]
    assert train_demo_pair.make_plan(train_demo_pair.parser().parse_args(given)).tune_rate == rate


def test_the_rate_of_tuning_decides_how_far_the_target_moves(smoke: Path, tmp_path: Path) -> None:
    moved = {}
    for rate in ("1", "0.01"):
        work = tmp_path / rate
        given = ["--smoke", "--threads", "1", "--grow", str(smoke / "out"), "--layers", "8"]
        given += ["--tune-rate", rate, "--out", str(work / "out"), "--work", str(work)]
        assert train_demo_pair.main([*given, "--stage", "corpus,tokenizer,grow,tune"]) == 0
        before, after = (load_file(str(work / f"target{n}.safetensors")) for n in ("-base", ""))
        moved[rate] = sum(float((after[n] - before[n]).norm()) for n in before)
    assert 0 < moved["0.01"] < 0.1 * moved["1"]


def test_grow_trains_a_deeper_pair_from_the_files_of_another(smoke: Path, tmp_path: Path) -> None:
    grown = ["--smoke", "--threads", "1", "--grow", str(smoke / "out"), "--layers", "8"]
    train_demo_pair.main([*grown, "--out", str(tmp_path / "out"), "--work", str(tmp_path)])
    target, draft, tokens = load_pair(tmp_path / "out")
    assert (target.shape.layers, target.shape.capture) == (8, (2, 4, 6))
    before, first, _ = load_pair(smoke / "out")
    counts = load_file(str(tmp_path / "policy-again.safetensors"))["counts"]
    assert torch.equal(tokens, draft_tokens(counts, 200))
    assert not torch.equal(draft.fc.weight, first.fc.weight)
    silent = [value for name, value in target.state_dict().items() if "down_proj" in name]
    assert all(bool(value.any()) for value in silent)
    old = (smoke / "out" / "target" / "tokenizer.json").read_bytes()
    assert (tmp_path / "out" / "target" / "tokenizer.json").read_bytes() == old
    assert before.shape.layers == 4
    rows = json.loads((tmp_path / "evaluation.json").read_text())
    assert rows[0]["accept_length"]["5"] >= 1.0


def test_a_renewed_vocabulary_keeps_the_rows_of_the_words_that_stay() -> None:
    draft, head = Draft(TINY), torch.randn(50, 16)
    before, tokens = draft.lm_head.weight.detach().clone(), torch.arange(0, 40, 2)
    counts = torch.zeros(50, dtype=torch.long)
    counts[10:30] = 1
    renewed = renew_vocabulary(draft, tokens, counts, head)
    assert renewed.tolist() == list(range(10, 30))
    for row, token in enumerate(renewed.tolist()):
        want = before[token // 2] if token % 2 == 0 else head[token]
        assert torch.equal(draft.lm_head.weight[row], want)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--grow {pair} --layers 6", "has 4 layers, and --layers 6 is no multiple of them."),
        ("--grow {pair}/none", "No such file"),
        ("--stage nope", "--stage: unknown stage 'nope'."),
        ("--stage grow", "Stage grow needs --grow FOLDER"),
        ("--stage target", "No such file"),
        ("--work {work} --seed 3", "was made with seed 20260, not 3. The same, since"),
        ("--work {work} --grow {pair} --layers 8", "was made with layers 4, not 8."),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    smoke: Path, tmp_path: Path, words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words.format(pair=smoke / "out", work=smoke / "work").split()
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert train_demo_pair.main(["--smoke", *folders, *given]) in (2, 3)
    said = capsys.readouterr().err
    assert said.startswith("train_demo_pair: error: ")
    assert says in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 1), (4, 2), (2, 2)])
def test_cached_generation_equals_full_forwards(heads: int, kv_heads: int) -> None:
    torch.manual_seed(0)
    model = Target(replace(TINY, heads=heads, kv_heads=kv_heads))
    prompts = [[1, 5, 9], [2, 4, 6, 8, 10], [7]]
    made = generate.generate(model, prompts, 6, end=-1)
    for prompt, own in zip(prompts, made, strict=True):
        ids = list(prompt)
        for token in own:
            assert token == int(model(torch.tensor([ids]))[0, -1].argmax())
            ids.append(token)


def test_unroll_step_equals_draft_decoding() -> None:
    """Step s of a row is what a draft sees that extends by true rows and then chains s times."""
    torch.manual_seed(0)
    target, draft = Target(TINY), Draft(TINY)
    ids = torch.randint(0, TINY.vocab, (1, 9))
    _, features = target.hidden(ids)
    steps = rows_logits(draft, target.embed_tokens.weight, features, 3, ids)
    short = rows_logits(draft, target.embed_tokens.weight, features[:, :6], 3, ids[:, :6])
    torch.testing.assert_close(steps[0][:, :5], short[0])
    torch.testing.assert_close(steps[2][:, :2], short[2][:, :2])


def test_a_right_draft_commits_depth_plus_one_a_pass() -> None:
    hits = [[True] * 7 for _ in range(21)]
    assert walk(hits, 21, 4) == (20, 4)
    assert walk([[False] * 7 for _ in range(21)], 21, 4) == (20, 20)


def test_repeats() -> None:
    assert generate.repeated_ngrams([1, 2, 3, 4, 5, 6]) == 0.0
    assert generate.repeated_ngrams([1, 2, 3, 4] * 4) == pytest.approx(9 / 13)
    assert generate.repeat_positions([1, 2, 3, 4, 1, 2, 3, 4]) == [7]


def test_answer_mask_covers_answers_and_their_end() -> None:
    assistant, end = 1, 2
    ids = [9, 8, assistant, 5, 6, end, 9, assistant, 7, end]
    assert text.answer_mask(ids, assistant, end) == [
        False,
        False,
        False,
        True,
        True,
        True,
        False,
        False,
        True,
        True,
    ]


def test_packing_keeps_conversations_whole() -> None:
    rows = [[1] * 5, [2] * 7, [3] * 3, [4] * 2]
    ids, used = text.pack(rows, 10)
    assert used.tolist() == [10, 7] or sum(used.tolist()) == 17
    assert sorted(ids[ids > 0].tolist()) == sorted(t for row in rows for t in row)


def test_orthogonalise_gives_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((2, 12, 30), (2, 30, 12)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert float(values.min()) > 0.5
        assert float(values.max()) < 1.4

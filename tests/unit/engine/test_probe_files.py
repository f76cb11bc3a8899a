"""Offline files of speculators and SpecForge, written here by hand as those tools lay them out."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from specbench.engine.probe_files import conversion, feature_files, read_feature_file
from specbench.errors import CheckpointError, WorkloadError

S, A, WIDTH = 6, 3, 4
IDS = torch.arange(10, 10 + S)
MASK = torch.tensor([0, 0, 1, 1, 1, 1])
STREAMS = torch.arange(S * A * WIDTH, dtype=torch.float32).view(S, A, WIDTH)
LAST = -torch.ones(S, WIDTH)
LISTED = torch.cat([STREAMS, LAST[:, None]], 1)
FORMS = {
    "speculators": {"token_ids": IDS, "hidden_states": LISTED},
    "speculators joined": {"input_ids": IDS, "hidden_states": LISTED.flatten(1)},
    "speculators standard": {
        "input_ids": IDS,
        "loss_mask": MASK,
        "hidden_states": STREAMS.flatten(1),
        "verifier_last_hidden_states": LAST,
    },
    "specforge": {
        "input_ids": IDS,
        "loss_mask": MASK,
        "hidden_state": LAST,
        "aux_hidden_state": STREAMS.flatten(1),
    },
    "specforge batch": {
        "input_ids": IDS[None],
        "loss_mask": MASK[None],
        "hidden_state": LAST[None],
        "aux_hidden_state": STREAMS.flatten(1)[None],
    },
}


def written(path: Path, tensors: dict[str, Tensor]) -> Path:
    save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_text(form: str, tmp_path: Path) -> None:
    raw = read_feature_file(written(tmp_path / "hs_0.safetensors", FORMS[form]), WIDTH)
    assert raw.tokens == (10, 11, 12, 13, 14, 15)
    assert torch.equal(torch.stack(raw.streams, 1), STREAMS)
    assert torch.equal(raw.last, LAST)
    told = tuple(bool(m) for m in MASK) if "loss_mask" in FORMS[form] else None
    assert (raw.mask, raw.layers, raw.normed) == (told, None, None)


NAN = LISTED.clone()
NAN[2, 1, 0] = float("nan")


@pytest.mark.parametrize(
    ("form", "changes", "said"),
    [
        ("speculators", {"novel": IDS.clone()}, "holds hidden_states, novel, token_ids"),
        ("specforge", {"novel": IDS.clone()}, "aux_hidden_state, hidden_state"),
        ("speculators", {"token_ids": IDS[1:]}, "stream 0 has 6 rows, and there are 5 tokens"),
        ("specforge", {"loss_mask": MASK[1:]}, "loss_mask has 5 rows, and there are 6 tokens"),
        ("specforge", {"hidden_state": LAST[1:]}, "the last state has 5 rows"),
        ("specforge", {"aux_hidden_state": LISTED}, r"\[6, 4, 4\]"),
        ("specforge", {"aux_hidden_state": torch.ones(S, 10)}, r"\[6, 10\], .* width is 4"),
        ("speculators joined", {"hidden_states": torch.ones(S, 9)}, r"\[6, 9\], .* width is 4"),
        ("speculators", {"hidden_states": NAN}, "stream 1 holds values that are not finite"),
        ("speculators", {"token_ids": IDS.float()}, r"token_ids is float32 \[6\]\. Whole numbers"),
        ("specforge", {"input_ids": IDS > 0}, r"input_ids is bool \[6\]\. Whole numbers"),
        ("speculators", {"token_ids": IDS.view(2, 3)}, r"token_ids is int64 \[2, 3\]"),
        ("specforge", {"loss_mask": MASK * 2}, r"loss_mask is int64 \[6\]\. Zeros and ones"),
        ("specforge", {"loss_mask": MASK / 3}, r"loss_mask is float32 \[6\]"),
        ("speculators", {"hidden_states": LISTED.int()}, r"stream 0 is int32 \[6, 4\]\. Rows of"),
        ("specforge", {"hidden_state": LAST.long()}, r"the last state is int64 \[6, 4\]"),
        ("speculators standard", {"verifier_last_hidden_states": LAST[0]},
         r"the last state is float32 \[4\]\. Rows of"),
        ("speculators", {"hidden_states": LISTED[..., None]}, "hidden_states has shape"),
        ("speculators", {"hidden_states": torch.tensor(1.0)}, "hidden_states has shape"),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    form: str, changes: dict[str, Tensor], said: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "x.safetensors", FORMS[form] | changes)
    with pytest.raises(WorkloadError, match=said):
        read_feature_file(path, WIDTH)


def test_other_safetensors_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "model.safetensors", {"lm_head.weight": LAST})
    with pytest.raises(WorkloadError, match=r"model\.safetensors holds lm_head\.weight"):
        read_feature_file(path, WIDTH)
    (tmp_path / "part.safetensors").write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match="not a whole safetensors"):
        read_feature_file(tmp_path / "part.safetensors", WIDTH)


def test_files_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("hs_10", "hs_2", "more/hs_1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written((tmp_path / name).with_suffix(".safetensors"), FORMS["speculators"])
    (tmp_path / "hs_2.safetensors.lock").touch()
    names = [path.stem for path in feature_files(tmp_path)]
    assert names == ["hs_2", "hs_10", "hs_1"]
    assert feature_files(tmp_path / "hs_2.safetensors") == [tmp_path / "hs_2.safetensors"]


@pytest.mark.parametrize("name", ["data_0.ckpt", "data_0.pt", "rows_0-1/data_0.ckpt.gz"])
def test_pickles_are_never_loaded(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    with pytest.raises(WorkloadError, match="only pickle files") as refused:
        feature_files(tmp_path)
    assert "weights_only=True" in str(refused.value)
    assert ("gunzip" in str(refused.value)) == name.endswith(".gz")
    with pytest.raises(WorkloadError, match="pickle"):
        feature_files(path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"holds no \.safetensors file"):
        feature_files(tmp_path)
    with pytest.raises(WorkloadError, match="is not there"):
        feature_files(tmp_path / "x")


def test_the_command_that_errors_give_converts_both_forms(tmp_path: Path) -> None:
    listed = {"input_ids": IDS, "loss_mask": MASK, "hidden_states": list(LISTED.unbind(1))}
    torch.save(listed, tmp_path / "data_0.pt")
    torch.save(FORMS["specforge batch"], tmp_path / "data_1.pt")
    program, flag, code = shlex.split(conversion(tmp_path / "*.pt"))
    assert (program, flag) == ("python", "-c")
    exec(code, {})  # what the user is told to run
    for number in range(2):
        raw = read_feature_file(tmp_path / f"data_{number}.pt.safetensors", WIDTH)
        assert torch.equal(torch.stack(raw.streams, 1), STREAMS)
        assert torch.equal(raw.last, LAST)
        assert raw.mask == tuple(bool(m) for m in MASK)


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8, torch.bool, torch.float32])
def test_a_mask_may_be_of_any_type(kind: torch.dtype, tmp_path: Path) -> None:
    tensors = FORMS["specforge"] | {"loss_mask": MASK.to(kind)}
    raw = read_feature_file(written(tmp_path / "x.safetensors", tensors), WIDTH)
    assert raw.mask == (False, False, True, True, True, True)

"""Round trips: equal bytes, equal spec; what a format or an engine cannot say is an error (T11)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbench.checkpoint import Folder, read_draft, read_target
from specbench.checkpoint.draft_names import by_canonical
from specbench.checkpoint.writers import LAYOUTS, write_draft
from specbench.cli import main
from specbench.errors import CheckpointError, OutputError, SpecbenchError
from specbench.modelspec import DraftSpec
from tests.drafts import KINDS, Kind, write_kind
from tests.tiny import TinyPair, write_pair

DEMO = Path(__file__).parents[3] / "specbench" / "demo"
READERS = (
    *(("specforge", e) for e in ("", "sglang==0.5.8", "sglang==0.5.23", "vllm==0.32")),
    *(("nvidia", e) for e in ("", "sglang==0.5.23", "vllm==0.16")),
    *(("speculators", e) for e in ("", "vllm==0.32")),
)


def read(pair: TinyPair, **flags: Any) -> tuple[DraftSpec, Folder]:
    return read_draft(pair.draft, read_target(pair.target)[0], **flags)


def written(spec: DraftSpec, folder: Folder, out: Path, **how: Any) -> Path:
    write_draft(spec, folder, out, layers=4, **how)
    return out


def core(spec: DraftSpec) -> DraftSpec:
    """Without what names the file it came from."""
    return replace(spec, file_format="", capture_source="", caveats=())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_trip_or_a_reason(tmp_path: Path, kind: Kind, layout: str) -> None:
    pair = write_kind(tmp_path, kind)
    spec, folder = read(pair)
    can_say = set(kind.flags) <= set(LAYOUTS[layout].flags)
    can_hold = not kind.last_hidden or LAYOUTS[layout].last_hidden
    can_attend = not kind.latent or layout in ("specforge", "speculators")
    out, flags = tmp_path / "out", dict[str, Any]()
    if layout == "safeailab":
        flags = {"capture_ids": (1, 2, 3)}
    if not (can_say and can_hold and can_attend):
        with pytest.raises(CheckpointError, match="cannot express"):
            written(spec, folder, out, layout=layout, drop_ids=layout == "safeailab")
        assert not out.exists()
        return
    written(spec, folder, out, layout=layout, drop_ids=layout == "safeailab")
    again = read_draft(out, read_target(pair.target)[0], **flags)[0]
    assert core(again) == core(spec)
    assert again.file_format == layout
    before = by_canonical(load_file(pair.draft / "model.safetensors"))
    after = by_canonical(load_file(out / "model.safetensors"))
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value.dtype == after[name].dtype
        assert torch.equal(value, after[name])


@pytest.mark.parametrize(("layout", "engine"), READERS)
def test_ids_for_an_engine(tmp_path: Path, layout: str, engine: str) -> None:
    pair = write_pair(tmp_path)
    spec, folder = read(pair)
    out = written(spec, folder, tmp_path / "out", layout=layout, engine=engine)
    config = json.loads((out / "config.json").read_text())
    as_is = engine.startswith("vllm") or layout == "speculators"
    place = config if as_is else config["eagle_config"]
    assert place["eagle_aux_hidden_state_layer_ids"] == ([1, 2, 3] if as_is else [0, 1, 2])
    assert core(read_draft(out, read_target(pair.target)[0])[0]) == core(spec)


def test_deepseek_ids_since_0_5_14_survive_the_round_trip(tmp_path: Path) -> None:
    """The ids that SGLang needs there mean other layers to SpecForge; the file says which."""
    pair = write_pair(tmp_path)
    spec, folder = read(pair)
    spec = replace(spec, capture_physical=(2, 3, 4))
    with pytest.raises(CheckpointError, match="cannot be expressed"):
        written(spec, folder, tmp_path / "a", layout="specforge", engine="sglang==0.5.23",
                arch="DeepseekV3")  # fmt: skip
    spec = replace(spec, capture_physical=(0, 2, 3))
    with pytest.raises(CheckpointError, match=r"cannot be expressed.*embedding"):
        written(spec, folder, tmp_path / "b", layout="specforge")
    spec = replace(spec, capture_physical=(2, 3, 5))
    result = write_draft(spec, folder, tmp_path / "c", layout="specforge", layers=8,
                         engine="sglang==0.5.23", arch="DeepseekV3ForCausalLM")  # fmt: skip
    assert result.ids == (2, 3, 5)
    config = json.loads((tmp_path / "c" / "config.json").read_text())
    assert config["specbench"] == {"capture_physical": [2, 3, 5], "ids_for": "sglang==0.5.23"}


@pytest.mark.parametrize(
    ("flags", "layout", "engine", "reason"),
    [
        (("norm_before_residual",), "speculators", "sglang==0.5.23", "norm_before_residual"),
        ((), "speculators", "sglang==0.5.23", "nested transformer_layer_config"),
        (("norm_output",), "specforge", "sglang==0.5.12", "norm_output"),
    ],
)
def test_what_an_engine_would_ignore(
    tmp_path: Path, flags: tuple[str, ...], layout: str, engine: str, reason: str
) -> None:
    spec, folder = read(write_kind(tmp_path, Kind(name="x", flags=flags)))
    with pytest.raises(CheckpointError, match=f"does not read .*{reason}"):
        written(spec, folder, tmp_path / "out", layout=layout, engine=engine)


def test_a_full_folder_is_left_alone(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    spec, folder = read(pair)
    with pytest.raises(OutputError, match="not empty"):
        written(spec, folder, pair.draft, layout="specforge")


def test_a_direct_map_is_refused_read_when_asked_and_written_as_offsets(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    path = pair.draft / "model.safetensors"
    tensors = load_file(path)
    offsets = tensors["d2t"]
    save_file({**tensors, "d2t": offsets + torch.arange(len(offsets))}, path)
    with pytest.raises(CheckpointError, match="direct map"):
        read(pair)
    spec, folder = read(pair, d2t="direct")
    out = written(spec, folder, tmp_path / "out", layout="specforge")
    assert torch.equal(load_file(out / "model.safetensors")["d2t"], offsets)
    assert read_draft(out, read_target(pair.target)[0])[0].d2t_policy.startswith("offsets")
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match="was said to hold target ids"):
        read(pair, d2t="direct")


def test_the_shipped_pair_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All re-exports carry the same bytes and spec, so their logits are those of the original."""
    target = read_target(DEMO / "target")[0]
    spec, folder = read_draft(DEMO / "draft", target)
    for layout in LAYOUTS:
        out = tmp_path / layout
        words = ["convert", "--draft", str(DEMO / "draft"), "--target", str(DEMO / "target")]
        words += ["--to", layout, "--out", str(out)]
        if layout == "safeailab":
            assert main(words) == 2
            words.append("--drop-ids")
        assert main(words) == 0
        flags: dict[str, Any] = {"capture_ids": (2, 4, 7)} if layout == "safeailab" else {}
        again, copy = read_draft(out, target, **flags)
        assert core(again) == core(spec)
        for name, entry in folder.tensors.items():
            assert bytes_of(entry) == bytes_of(copy.tensors[name])
    assert "say --capture-ids 2,4,7" in capsys.readouterr().out


def bytes_of(entry: Any) -> bytes:
    with entry.path.open("rb") as file:
        file.seek(entry.begin)
        return bytes(file.read(entry.end - entry.begin))


def test_an_unknown_engine(tmp_path: Path) -> None:
    spec, folder = read(write_pair(tmp_path))
    with pytest.raises(SpecbenchError, match="not a known code base"):
        written(spec, folder, tmp_path / "out", layout="specforge", engine="tgi==1")

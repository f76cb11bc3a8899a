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
from specbench.checkpoint.layouts import LAYOUTS
from specbench.checkpoint.writers import write_draft
from specbench.cli import main
from specbench.errors import CheckpointError, OutputError, SpecbenchError
from specbench.modelspec import DraftSpec
from tests.drafts import FLAGS, KINDS, LLAMA3, Kind, write_kind
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


def able(kind: Kind) -> set[str]:
    """The formats whose code bases have what ``kind`` has (engine-spec 1.2 to 1.5)."""
    says = {
        "safeailab": set[str](),
        "specforge": {"fc_norm", "norm_output", "last", "latent", "bias", "fc_bias"},
        "nvidia": {"last", "latent", "bias"},
        "speculators": {*FLAGS, "bias", "heads"},
    }
    parts = {"last": kind.last_hidden, "latent": kind.latent, "bias": kind.bias,
             "fc_bias": kind.fc_bias, "heads": kind.head_norm}  # fmt: skip
    has = {*kind.flags, *(name for name, there in parts.items() if there)}
    return {layout for layout, said in says.items() if has <= said}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_trip_or_a_reason(tmp_path: Path, kind: Kind, layout: str) -> None:
    pair = write_kind(tmp_path, kind)
    spec, folder = read(pair)
    out, flags = tmp_path / "out", dict[str, Any]()
    if layout == "safeailab":
        flags = {"capture_ids": (1, 2, 3)}
    if layout not in able(kind):
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


@pytest.mark.parametrize(
    ("kind", "layout", "engine", "reason"),
    [
        (Kind(name="b", bias=True), "specforge", "sglang==0.5.23", "attention_bias"),
        (Kind(name="f", fc_bias=True), "specforge", "vllm==0.32", "fc.bias"),
        (Kind(name="h", head_norm=True), "speculators", "vllm==0.16", "normed query"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_parts_that_an_engine_does_not_read(
    tmp_path: Path, kind: Kind, layout: str, engine: str, reason: str
) -> None:
    spec, folder = read(write_kind(tmp_path, kind))
    with pytest.raises(CheckpointError, match=f"does not read .*{reason}"):
        written(spec, folder, tmp_path / "out", layout=layout, engine=engine)


def test_what_others_can_say_is_named(tmp_path: Path) -> None:
    spec, folder = read(write_kind(tmp_path, Kind(name="h", head_norm=True)))
    with pytest.raises(CheckpointError, match=r"normed query.*A format that can: speculators\."):
        written(spec, folder, tmp_path / "out", layout="specforge")
    both = replace(spec, fc_bias=True)
    with pytest.raises(CheckpointError, match="none can express all of it"):
        written(both, folder, tmp_path / "out", layout="specforge")


def test_scaled_rotations_are_written_in_the_old_spelling(tmp_path: Path) -> None:
    """rope_parameters of transformers 5 becomes rope_theta and rope_scaling, which all read."""
    pair = write_kind(tmp_path, Kind(name="s", scaling=LLAMA3))
    path = pair.draft / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"] = {**config.pop("rope_scaling"), "rope_theta": 7.5e5}
    config.pop("rope_theta")
    path.write_text(json.dumps(config))
    spec, folder = read(pair)
    for layout in ("specforge", "speculators"):
        out = written(spec, folder, tmp_path / layout, layout=layout)
        whole = json.loads((out / "config.json").read_text())
        table = whole.get("transformer_layer_config", whole)
        assert (table["rope_theta"], table["rope_scaling"]) == (7.5e5, LLAMA3)
        assert "rope_parameters" not in table


def test_a_window_survives_and_sglang_has_to_be_told(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    path = pair.draft / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sliding_window": 256}))
    spec, folder = read(pair)
    assert spec.context_limit == 256
    for engine, told in (("sglang==0.5.23", ["window of 256"]), ("vllm==0.16", [])):
        out = tmp_path / engine
        result = write_draft(spec, folder, out, layout="specforge", engine=engine, layers=4)
        assert [w for w in told if w in result.notes[0]] == told if told else not result.notes
        assert core(read_draft(out, read_target(pair.target)[0])[0]) == core(spec)


def test_sharded_drafts_of_every_format_read_the_same(tmp_path: Path) -> None:
    """Two files and an index, as large exports are."""
    pair = write_pair(tmp_path)
    spec, folder = read(pair)
    for layout in ("specforge", "nvidia", "speculators"):
        out = written(spec, folder, tmp_path / layout, layout=layout)
        shard(out)
        again, sharded = read_draft(out, read_target(pair.target)[0])
        assert core(again) == core(spec)
        assert len(sharded.files) == 2


def shard(folder: Path) -> None:
    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    names = sorted(tensors)
    places = {name: f"model-{i % 2 + 1:05}-of-00002.safetensors" for i, name in enumerate(names)}
    whole.unlink()
    for file in set(places.values()):
        save_file({n: tensors[n] for n in names if places[n] == file}, folder / file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


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

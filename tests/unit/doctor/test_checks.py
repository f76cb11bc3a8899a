"""Static checks: each fault of the files is named; the shipped pair is not accused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specbench import demo
from specbench.doctor.checks import static_findings
from specbench.doctor.checks_subject import read_subject
from specbench.doctor.findings import Finding, Severity, has_error, rank
from specbench.errors import CheckpointError
from tests.drafts import KINDS, Kind, write_kind
from tests.unit.checkpoint.published_drafts import PUBLISHED, Published
from tests.unit.checkpoint.test_published_drafts import publish

Config = dict[str, Any]
Tensors = dict[str, np.ndarray]
IDS = "eagle_aux_hidden_state_layer_ids"


def draft(
    folder: Path,
    config: Callable[[Config], object] = lambda c: None,
    tensors: Callable[[Tensors], object] = lambda t: None,
) -> Path:
    """A copy of the shipped draft with its config and tensors changed."""
    shutil.copytree(demo.DRAFT, folder)
    path = folder / "config.json"
    table = json.loads(path.read_text())
    config(table)
    path.write_text(json.dumps(table))
    values = load_file(folder / "model.safetensors")
    tensors(values)
    save_file(values, folder / "model.safetensors")
    return folder


def findings(path: Path, **flags: Any) -> dict[str, Finding]:
    """Ranked findings by code, in order."""
    return {f.code: f for f in rank(static_findings(read_subject(demo.TARGET, path, **flags)))}


def ids(values: list[int] | None) -> Callable[[Config], object]:
    return lambda c: c["eagle_config"].update({IDS: values})


def test_the_shipped_pair_has_one_note() -> None:
    found = findings(demo.DRAFT)
    assert list(found) == ["ids.engines"]
    assert found["ids.engines"].severity is Severity.NOTE


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (lambda c: c.pop("eagle_config"), "ids.absent"),
        (lambda c: c["eagle_config"].update({IDS: []}), "ids.absent"),
        (
            lambda c: c["eagle_config"].update({"layer_ids": c["eagle_config"].pop(IDS)}),
            "ids.misplaced",
        ),
        (lambda c: c.update({IDS: [1, 3, 6]}), "ids.two_sets"),
        (ids([1, 3, 60]), "ids.range"),
        (ids([1, 3, 3]), "ids.repeated"),
        (ids([1, 3]), "fc.width"),
        (ids([-1, 3, 6]), "ids.embedding"),
        (lambda c: c.update(vocab_size=5000), "vocab.size"),
        (lambda c: c.update(draft_vocab_size=1000), "map.shape"),
        (lambda c: c.update(target_hidden_size=512), "draft.target"),
        (lambda c: c.update(intermediate_size=700), "tensors.shape"),
        (lambda c: c.update(tie_word_embeddings=True), "head.tied"),
        (lambda c: c.update(fc_norm=True), "norms.missing"),
        (lambda c: c.update(attention_bias=True), "tensors.missing"),
        (lambda c: c.pop("draft_vocab_size"), "files.refused"),
    ],
)  # fmt: skip
def test_a_fault_of_the_config_is_an_error(
    tmp_path: Path, config: Callable[[Config], object], code: str
) -> None:
    found = findings(draft(tmp_path / "d", config))
    assert found[code].severity is Severity.ERROR
    assert found[code].evidence
    assert found[code].remedy


def direct(t: Tensors) -> None:
    t["d2t"] = np.arange(len(t["d2t"])) + t["d2t"]


def direct_alone(t: Tensors) -> None:
    direct(t)
    t.pop("t2d")


@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        (direct, "map.direct"),
        (direct_alone, "map.direct"),
        (lambda t: t.update(d2t=np.zeros_like(t["d2t"])), "map.missing"),
        (lambda t: t.pop("d2t"), "map.missing"),
        (lambda t: t.update(t2d=np.roll(t["t2d"], 1)), "map.disagrees"),
        (lambda t: t.pop("midlayer.mlp.up_proj.weight"), "tensors.missing"),
        (lambda t: t.update({"extra.weight": np.ones(2, np.float16)}), "tensors.unknown"),
        (lambda t: t.update({"lm_head.weight": 0 * t["lm_head.weight"]}), "tensors.values"),
        (lambda t: t["norm.weight"].fill(np.nan), "tensors.values"),
        (lambda t: t.update({"input_norm.weight": np.ones(768, np.float16)}), "norms.unused"),
        (
            lambda t: t.update(
                {f"midlayer.self_attn.{n}_proj.weight":
                 t[f"midlayer.self_attn.{n}_proj.weight"][:, :256].copy() for n in "qkv"}
            ),
            "draft.kind",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_the_tensors_is_an_error(
    tmp_path: Path, tensors: Callable[[Tensors], object], code: str
) -> None:
    assert findings(draft(tmp_path / "d", tensors=tensors))[code].severity is Severity.ERROR


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (lambda c: c.update(rope_theta=5e5), "rope.theta"),
        (lambda c: c.update(rope_scaling={"rope_type": "yarn", "factor": 2.0}), "rope.scaling"),
        (lambda c: c.update(max_position_embeddings=1024), "rope.positions"),
        (ids([6, 3, 1]), "ids.order"),
        (lambda c: c.update(an_unknown_key=1), "files.unsupported"),
        (lambda c: c.update(quantization_config={"quant_method": "fp8"}), "files.unsupported"),
        (lambda c: c.update(rope_scaling={"type": "dynamic", "factor": 2.0}), "files.unsupported"),
    ],
)
def test_what_may_be_meant_is_no_error_of_its_own(
    tmp_path: Path, config: Callable[[Config], object], code: str
) -> None:
    found = findings(draft(tmp_path / "d", config))
    assert found[code].severity is not Severity.ERROR
    assert not has_error(found.values())


@pytest.mark.parametrize("one", [p for p in PUBLISHED if not p.refused], ids=lambda p: p.source)
def test_a_published_draft_that_is_read_is_not_accused(tmp_path: Path, one: Published) -> None:
    pair = publish(tmp_path, one)
    subject = read_subject(pair.target, pair.draft, given=one.given.get("capture_ids"))
    errors = [f for f in static_findings(subject) if f.severity is Severity.ERROR]
    assert not errors


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_draft_of_any_kind_that_runs_is_not_accused(tmp_path: Path, kind: Kind) -> None:
    """Biases, normed heads, several layers, latent attention, a width of its own."""
    pair = write_kind(tmp_path, kind)
    errors = [
        f
        for f in static_findings(read_subject(pair.target, pair.draft))
        if f.severity is Severity.ERROR
    ]
    assert not errors


@pytest.mark.parametrize("value", [["1", "3", "6"], "1,3,6", [1.0, 3.0, 6.0], {"low": 1}])
def test_ids_of_another_kind_are_shown(tmp_path: Path, value: Any) -> None:
    fact = findings(draft(tmp_path / "d", ids(value)))["ids.absent"].evidence[0]
    assert fact.text.endswith("which is no list of whole numbers")
    assert "1" in fact.text


def test_a_target_that_is_published_quantised_is_only_noted(tmp_path: Path) -> None:
    def severity(arch: str) -> Severity:
        config = json.loads((demo.TARGET / "config.json").read_text())
        config |= {"architectures": [arch], "quantization_config": {"quant_method": "mxfp4"}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        found = static_findings(read_subject(tmp_path, demo.DRAFT))
        return next(f.severity for f in found if f.code == "dtype.quantised")

    assert severity("LlamaForCausalLM") is Severity.WARNING
    assert severity("GptOssForCausalLM") is Severity.NOTE


def test_a_head_dim_that_is_not_written_is_named(tmp_path: Path) -> None:
    """Qwen3's heads are wider than hidden / heads; a draft's config often leaves that out."""

    def config(c: Config) -> None:
        c.pop("head_dim")
        c.update(num_attention_heads=2, num_key_value_heads=1)

    def tensors(t: Tensors) -> None:
        for name, rows in (("q", 128), ("k", 64), ("v", 64)):
            key = f"midlayer.self_attn.{name}_proj.weight"
            t[key] = t[key][:rows].copy()
        key = "midlayer.self_attn.o_proj.weight"
        t[key] = t[key][:, :128].copy()

    remedy = findings(draft(tmp_path / "d", config, tensors))["tensors.shape"].remedy
    assert "names no head_dim, and 64 would fit" in remedy


def test_biases_that_no_flag_asks_for_are_told_as_such(tmp_path: Path) -> None:
    bias = {f"midlayer.self_attn.{n}_proj.bias": np.zeros(4, np.float16) for n in "qk"}
    found = findings(draft(tmp_path / "d", tensors=lambda t: t.update(bias)))
    assert "attention_bias" in found["tensors.unknown"].remedy


@pytest.mark.parametrize("place", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_chat_template_counts_wherever_it_is_kept(tmp_path: Path, place: str) -> None:
    folder = draft(tmp_path / "d")
    theirs = json.loads((demo.TARGET / "tokenizer_config.json").read_text())["chat_template"]

    def keep(source: str) -> dict[str, Finding]:
        as_key = json.dumps({"chat_template": [{"name": "default", "template": source}]})
        (folder / place).write_text(as_key if place.endswith("json") else source)
        return findings(folder)

    assert "template.differs" not in keep(theirs)
    assert place in keep("another")["template.differs"].evidence[0].text


def test_ids_are_judged_for_a_named_engine() -> None:
    assert "ids.engines" not in findings(demo.DRAFT, engine="sglang==0.5.23")
    found = findings(demo.DRAFT, engine="vllm==0.32")["ids.engines"]
    assert found.severity is Severity.ERROR
    assert "[2, 4, 5]" in found.evidence[0].text  # its default, as it does not look there
    assert f"{IDS} = [2, 4, 7]" in found.remedy


def test_the_embedding_as_a_layer_is_pointed_out() -> None:
    found = findings(demo.DRAFT, given=(0, 2, 4))
    assert found["ids.embedding"].severity is Severity.WARNING


def test_a_draft_without_ids_is_healthy_when_told(tmp_path: Path) -> None:
    plain = draft(tmp_path / "d", lambda c: c.pop("eagle_config"))
    found = findings(plain, given=(2, 4, 7))
    assert not has_error(found.values())
    assert "[2, 4, 5]" in found["ids.engines"].evidence[0].text


def test_configs_alone_can_be_checked(tmp_path: Path) -> None:
    shutil.copy(demo.DRAFT / "config.json", tmp_path)
    found = findings(tmp_path)
    assert found["files.unreadable"].severity is Severity.WARNING
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    assert findings(tmp_path)["files.unreadable"].severity is Severity.ERROR
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_subject(demo.TARGET, tmp_path)


def test_values_of_odd_kinds_do_not_break_a_check(tmp_path: Path) -> None:
    odd: list[Any] = [None, [], {}, "x", True, -1, 1e400]
    keys = [*json.loads((demo.DRAFT / "config.json").read_text()), IDS, "specbench", "fc_norm"]
    folder = draft(tmp_path / "d")
    path = folder / "config.json"
    original = json.loads(path.read_text())
    for key in keys:
        for value in odd:
            path.write_text(json.dumps({**original, key: value}))
            static_findings(read_subject(demo.TARGET, folder))

"""An engine that leaves part of a draft unread is named, with the part."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.doctor.checks import static_findings
from specbench.doctor.checks_subject import read_subject
from tests.drafts import KINDS, write_kind


@pytest.mark.parametrize(
    ("name", "engine", "unread"),
    [
        ("normed heads", "sglang==0.5.23", "normed query and key heads"),
        ("normed heads", "vllm==0.16", "normed query and key heads"),
        ("normed heads", "vllm==0.32", ""),
        ("biases", "sglang", "attention_bias"),
        ("fc bias", "vllm==0.32", "fc.bias"),
        ("fc bias", "sglang", ""),
        ("norm_before_residual", "sglang==0.5.23", "norm_before_residual"),
        ("two layers", "sglang==0.5.10", "2 draft layers"),
        ("two layers", "sglang", ""),
        ("plain", "sglang", ""),
    ],
)
def test_what_the_engine_leaves_unread_is_named(
    tmp_path: Path, name: str, engine: str, unread: str
) -> None:
    """One whose version is not given is taken for a new one: no false alarm for a guess."""
    pair = write_kind(tmp_path, next(kind for kind in KINDS if kind.name == name))
    found = static_findings(read_subject(pair.target, pair.draft, engine=engine))
    titles = [f.title for f in found if f.code == "norms.engine"]
    assert [unread in title and "99999" not in title for title in titles] == [True] * bool(unread)

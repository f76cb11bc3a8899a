"""Other ways to form the same prompts, and when one of them is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from specbench import demo
from specbench.doctor.wiring_template import (
    Variant,
    bos_finding,
    ratio_difference,
    renderings,
    template_finding,
)
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_text import Sample
from specbench.engine.text import TextCodec
from specbench.request import Message, Request

USER = Message(role="user", content="How far is it?")


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return cast("ModelPair", SimpleNamespace(codec=TextCodec(demo.TARGET)))


def formed(pair: ModelPair, folder: Path, request: Request) -> dict[str, str]:
    tokenizer = pair.codec.tokenizer
    return {
        name: tokenizer.decode(list(r.prompt_ids or ()), skip_special_tokens=False)
        for name, (r,) in renderings(pair, folder, [request])
    }


def test_a_templated_prompt_is_formed_in_two_other_ways(pair: ModelPair) -> None:
    found = formed(pair, demo.DRAFT, Request(request_id="a", messages=(USER,)))
    assert list(found.values()) == ["<|endoftext|><|user|>How far is it?", "How far is it?"]
    assert "without the reply's opening" in next(iter(found))


def test_a_raw_prompt_is_put_through_the_template(pair: ModelPair) -> None:
    found = formed(pair, demo.DRAFT, Request(request_id="a", prompt=USER.content))
    assert "<|endoftext|><|user|>How far is it?<|assistant|>" in found.values()
    assert USER.content not in found.values()


def test_the_template_of_the_draft_is_tried(pair: ModelPair, tmp_path: Path) -> None:
    settings = {"chat_template": "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    found = formed(pair, tmp_path, Request(request_id="a", messages=(USER,)))
    assert found["the chat template of the draft's folder"] == "[How far is it?]"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{% oops"}))
    assert len(formed(pair, tmp_path, Request(request_id="a", messages=(USER,)))) == 2


def variant(name: str, gain: float, *, requests: int = 36, limit: float = 3.0) -> Variant:
    """Ten positions a request, of which half of the requests gain ``gain`` each and the other half
    a tenth more, so that the standard error is 1 / sqrt(requests) points or less."""
    base = np.tile([6.0, 10.0], (requests, 1))
    steps = np.where(np.arange(requests) % 2, 0.5, -0.5)
    sums = base + np.stack([10 * gain + steps, np.zeros(requests)], 1)
    return Variant(name=name, sums=sums, base=base, limit=limit)


def test_a_variant_must_win_by_its_limit() -> None:
    error = variant("raw text", 0.05).error
    assert error == pytest.approx(0.05 / 6, rel=0.02)
    assert template_finding((variant("raw text", 2.9 * error),)) is None
    assert template_finding((variant("raw text", 0.09, requests=8),)) is None
    assert template_finding(()) is None
    later = variant("raw text", 3.1 * error, limit=3.3)
    assert template_finding((later,)) is None
    told = template_finding((variant("raw text", 0.09),))
    assert told is not None
    assert "69.0 % right, 60.0 % as prompts are formed now" in told.title


def test_of_variants_that_are_not_told_apart_the_first_is_named() -> None:
    usual, odd = variant("the template", 0.1), variant("half of it", 0.1001)
    odd.sums[::2, 0] += 0.4
    odd.sums[1::2, 0] -= 0.4
    told = template_finding((usual, odd))
    assert told is not None
    assert "after the template:" in told.title
    told = template_finding((variant("the template", 0.1), variant("half of it", 0.2)))
    assert told is not None
    assert "after half of it:" in told.title


def test_requests_are_paired() -> None:
    there = np.array([[1.0, 10.0], [5.0, 10.0], [9.0, 10.0]])
    gain, error = ratio_difference(np.add(there, [[1.0, 0.0]]), there)
    assert gain == pytest.approx(0.1)
    assert error == pytest.approx(0.0, abs=1e-12)  # the same gain in each, however they differ
    gain, error = ratio_difference(there[::-1], there)
    assert gain == pytest.approx(0.0)
    assert error > 0.2


def test_a_start_token_twice_is_told() -> None:
    def captured(*prompts: tuple[int, ...]) -> Capture:
        samples = tuple(
            Sample(request_id="", category="", tokens=p, prompt_len=len(p), output_len=1)
            for p in prompts
        )
        nothing: Any = torch.zeros(0)
        return Capture(
            samples=samples, starts=(0,) * len(samples), tokens=nothing, features={},
            normed=nothing, best=nothing, best_known=nothing, gap=nothing,
        )  # fmt: skip

    assert bos_finding(captured((0, 5, 6), (0, 7, 8)), 0) is None
    assert bos_finding(captured((0, 0, 6), (0, 0, 8)), None) is None
    told = bos_finding(captured((0, 0, 6), (0, 0, 8)), 0)
    assert told is not None
    assert told.code == "template.bos"

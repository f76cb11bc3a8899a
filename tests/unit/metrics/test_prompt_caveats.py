import dataclasses

import pytest

from specbench.config import SpecConfig
from specbench.estimate import Caveat, Severity
from specbench.metrics.example import trace_of
from specbench.metrics.prompt_caveats import is_random, prompt_caveats
from specbench.metrics.validity import caveats
from specbench.trace import Finish, RequestTrace
from tests.unit.metrics.test_validity import Edit, arm_of, sampling, traces

K3, K5 = SpecConfig.chain(3), SpecConfig.chain(5)


def found(traced: list[RequestTrace], spec: SpecConfig = K3) -> dict[str, Caveat]:
    return {caveat.code: caveat for caveat in prompt_caveats(arm_of(traced), spec)}


def asked(**changes: object) -> Edit:
    def edit(trace: RequestTrace) -> RequestTrace:
        request = dataclasses.replace(trace.request, **changes)  # type: ignore[arg-type]
        return dataclasses.replace(trace, request=request)

    return edit


def told(cached: int) -> Edit:
    return lambda trace: dataclasses.replace(
        trace, usage=dataclasses.replace(trace.usage, prompt_tokens=100, cached_tokens=cached)
    )


@pytest.mark.parametrize(
    ("code", "edit"),
    [
        ("synthetic_prompts", asked(category="synthetic")),
        ("synthetic_prompts", asked(messages=(), prompt_ids=tuple(range(50, 100)))),
        ("template_missing", asked(messages=(), prompt="Once upon a time")),
        ("length_capped", lambda trace: dataclasses.replace(trace, finish=Finish.LENGTH)),
        ("prefix_cache", told(6)),
    ],
)
def test_each_fault_raises_its_code_and_no_other(code: str, edit: Edit) -> None:
    assert set(found(traces(edit=edit))) == {code}
    assert found(traces()) == {}


def test_what_is_usual_raises_nothing() -> None:
    assert found(traces(edit=told(5))) == {}
    assert found(traces(edit=asked(messages=(), prompt_ids=(1, 2, 3, 4) * 20))) == {}
    half = traces()
    half[:10] = (dataclasses.replace(t, finish=Finish.LENGTH) for t in half[:10])
    assert found(half) == {}


def test_ignored_eos_is_not_called_a_cap_too() -> None:
    def edit(trace: RequestTrace) -> RequestTrace:
        return sampling(ignore_eos=True)(dataclasses.replace(trace, finish=Finish.LENGTH))

    assert found(traces(edit=edit)) == {}


def steps_of(accepted: list[int], depth: int) -> list[RequestTrace]:
    made = []
    for index in range(0, len(accepted), 10):
        trace = trace_of(accepted[index : index + 10], depth=depth, name=f"p{index}")
        edit = asked(prompt=None, messages=traces(1)[0].request.messages)
        made.append(edit(dataclasses.replace(trace, finish=Finish.STOP)))
    return made


@pytest.mark.parametrize(
    ("accepted", "simulated"),
    [
        ([1, 2] * 150, True),
        ([2] * 299 + [4], True),
        ([1, 2] * 148 + [0, 3, 5, 4], False),
        ([0, 1] * 150, False),
        ([4, 5] * 150, False),
        ([1, 2] * 90, False),
    ],
)
def test_simulated_acceptance_sits_on_two_counts(accepted: list[int], simulated: bool) -> None:
    seen = found(steps_of(accepted, 5), K5)
    assert ("synthetic_acceptance" in seen) is simulated
    if simulated:
        assert seen["synthetic_acceptance"].severity is Severity.INVALID


def test_rules_are_part_of_every_judgement() -> None:
    from specbench.metrics.figures import figures

    arm = arm_of(traces(edit=asked(category="synthetic")))
    listed = caveats(arm, K3, figures(arm, K3, None), baseline=None, lossless=None)
    assert "synthetic_prompts" in {caveat.code for caveat in listed}


def test_short_prompts_are_never_called_random() -> None:
    assert not is_random(range(31))
    assert is_random(range(32))

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbench.metrics.frequencies import compare_frequencies

Pair = tuple[tuple[int, ...], tuple[int, ...]]


def outputs(
    generator: np.random.Generator, count: int, sharpness: float, length: int = 20
) -> list[tuple[int, ...]]:
    """Sticky streams: a token is often said again, as in text, so tokens are not independent."""
    weights = np.exp(-sharpness * np.arange(12) / 4)
    made = []
    for _ in range(count):
        ids = [int(t) for t in generator.choice(12, size=length, p=weights / weights.sum())]
        for i in range(1, length):
            if generator.random() < 0.5:
                ids[i] = ids[i - 1]
        made.append(tuple(ids))
    return made


def test_false_alarms_of_equal_arms_are_as_rare_as_p_says() -> None:
    generator = np.random.default_rng(5)
    ps = []
    for _ in range(300):
        pairs = list(zip(outputs(generator, 20, 1), outputs(generator, 20, 1), strict=True))
        test = compare_frequencies(pairs)
        assert test is not None
        ps.append(test.p)
    assert np.mean(np.array(ps) < 0.05) < 0.1
    assert np.mean(np.array(ps) < 0.5) == pytest.approx(0.5, abs=0.1)


def test_a_sharper_sampler_is_found() -> None:
    generator = np.random.default_rng(6)
    pairs = list(zip(outputs(generator, 60, 1), outputs(generator, 60, 2), strict=True))
    test = compare_frequencies(pairs)
    assert test is not None
    assert test.p < 0.001
    assert test.distance > 0.1


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=12, max_size=20))
def test_an_arm_never_differs_from_itself_nor_by_order_of_arms(ids: list[list[int]]) -> None:
    same = compare_frequencies([(a, a) for a in ids])
    assert same is not None
    assert (same.p, same.distance) == (1.0, 0.0)
    pairs = [(a, list(reversed(b))) for a, b in zip(ids, ids[1:] + ids[:1], strict=True)]
    one, other = (compare_frequencies(p) for p in (pairs, [(b, a) for a, b in pairs]))
    assert one == other


def test_few_outputs_are_not_tested() -> None:
    assert compare_frequencies([((1,), (2,))] * 11) is None

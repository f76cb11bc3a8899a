from __future__ import annotations

import pytest

from specbench.dashboards.names import names_in


@pytest.mark.parametrize(
    ("expr", "metrics", "labels"),
    [
        ("up", ["up"], []),
        ("sum by (a, b) (x{c='1'})", ["x"], ["a", "b"]),
        ("sum(x) without (a)", ["x"], ["a"]),
        ("x / on (a) group_left (b) y > bool 0", ["x", "y"], ["a", "b"]),
        ('rate(x{c=~"$v",d!="}"}[$__rate_interval] offset $s) or -1 * y', ["x", "y"], []),
        ("last_over_time((x * y)[1h:5s] @ end())", ["x", "y"], []),
        ("histogram_quantile(0.99, x_bucket) >= 1e3 and NaN", ["x_bucket"], []),
        ("a:b:c unless y", ["a:b:c", "y"], []),
    ],
)
def test_names(expr: str, metrics: list[str], labels: list[str]) -> None:
    found = names_in(expr)
    assert [name for name, _ in found.metrics] == metrics
    assert list(found.labels) == labels


def test_labels_of_matchers_belong_to_their_metric() -> None:
    found = names_in('x{a="1", b!~"2"} / y{c="{z}"}')
    assert found.metrics == (("x", ("a", "b")), ("y", ("c",)))


def test_labels_that_a_function_makes() -> None:
    expr = 'label_join(label_replace(x, "one", "$1", "a", "(.*)"), "two", ", ", "a", "b")'
    assert set(names_in(expr).made) == {"one", "two"}

"""Lines as two independent readers understand them: the client library's parser and promtool."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from specbench.collectors import catalogue as c
from specbench.collectors import text

read_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**53))
def test_any_label_value_comes_back(value: str, number: int) -> None:
    line = text.sample("x_total", text.labels(("arm", "point"), ("spec", value)), number)
    page = f"# TYPE x_total counter\n{line}"
    ((family),) = read_text(page)
    assert [(s.labels, s.value) for s in family.samples] == [
        ({"arm": "spec", "point": value}, number)
    ]


def test_a_histogram_is_cumulative_and_ends_at_infinity() -> None:
    counts = [1, 0, 2, *[0] * (len(c.TTFT_SECONDS.buckets) - 2)]
    counts[-1] = 4
    lines = list(text.histogram(c.TTFT_SECONDS, 'arm="spec",point="p"', counts, 2.5))
    page = text.page([(c.TTFT_SECONDS, [line.encode() for line in lines])], openmetrics=False)
    (family,) = read_text(page.decode())
    found = {s.labels.get("le", s.name): s.value for s in family.samples}

    assert family.type == "histogram"
    assert (found["0.005"], found["0.01"], found["0.02"], found["30.0"]) == (1, 1, 3, 3)
    assert found["+Inf"] == found["specbench_ttft_seconds_count"] == 7
    assert found["specbench_ttft_seconds_sum"] == 2.5
    bounds = [float(s.labels["le"]) for s in family.samples if "le" in s.labels]
    assert bounds == [*c.TTFT_SECONDS.buckets, math.inf]


def test_both_formats_mean_the_same() -> None:
    families = [
        (c.REQUESTS, [b'specbench_requests_total{arm="spec",point="p",outcome="stop"} 3\n']),
        (c.RUNNING, [b"specbench_requests_running 2\n"]),
        (c.RUN_INFO, [b'specbench_run_info{run_id="r"} 1\n']),
        (c.QUEUED, []),
    ]
    plain = list(read_text(text.page(families, openmetrics=False).decode()))
    strict = list(read_openmetrics(text.page(families, openmetrics=True).decode() + "# EOF\n"))

    assert [f.type for f in plain] == ["counter", "gauge", "gauge"]
    assert [f.type for f in strict] == ["counter", "gauge", "info"]
    assert [f.documentation for f in plain] == [f.documentation for f in strict]
    assert [s.name for f in plain for s in f.samples] == [s.name for f in strict for s in f.samples]

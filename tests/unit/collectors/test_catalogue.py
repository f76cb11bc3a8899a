"""The catalogue keeps Prometheus' conventions, and the page of docs is made of it."""

from __future__ import annotations

import re

import pytest

from specbench.collectors.catalogue import ARM, CATALOGUE, PREFIX, Kind, Series
from tools.make_metrics_doc import DOC, document

ALL = pytest.mark.parametrize("series", CATALOGUE.values(), ids=CATALOGUE.keys())
BASE_UNITS = ("seconds", "bytes", "joules", "watts", "hertz", "celsius", "ratio")
OTHER_UNITS = r"_(ms|ns|us|milliseconds|percent|mib|kb|mhz|kilobytes)(_|$)"


@ALL
def test_names_have_the_prefix_and_the_suffix_of_their_type(series: Series) -> None:
    assert re.fullmatch(rf"{PREFIX}[a-z][a-z0-9_]*", series.name)
    assert series.name.endswith("_total") == (series.kind is Kind.COUNTER)
    assert series.name.endswith("_info") == (series.kind is Kind.INFO)
    assert not series.name.endswith(("_bucket", "_sum", "_count"))
    assert not re.search(OTHER_UNITS, series.name), f"base units are {BASE_UNITS}"


@ALL
def test_every_series_says_what_it_is(series: Series) -> None:
    assert series.help.endswith(".")
    assert len(set(series.labels)) == len(series.labels)
    assert not {"job", "instance", "le", "quantile", "__name__"} & {*series.labels}


@ALL
def test_no_ratio_is_exported_but_that_of_the_device(series: Series) -> None:
    assert "rate" not in series.name.split("_")
    assert "length" not in series.name
    assert "ratio" not in series.name or series.name == "specbench_gpu_utilization_ratio"


@ALL
def test_buckets_rise_and_belong_to_histograms(series: Series) -> None:
    assert bool(series.buckets) == (series.kind is Kind.HISTOGRAM)
    assert list(series.buckets) == sorted(set(series.buckets))


def test_whatever_has_a_point_has_its_arm() -> None:
    for series in CATALOGUE.values():
        assert not ({*ARM} & {*series.labels}) or series.labels[:2] == ARM


def test_the_page_of_docs_is_current() -> None:
    assert DOC.read_text(encoding="utf-8") == document(), "run: python -m tools.make_metrics_doc"


def test_the_page_names_every_series() -> None:
    text = document()
    assert all(f"| `{name}` |" in text for name in CATALOGUE)

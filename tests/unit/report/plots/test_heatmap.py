from matplotlib.figure import Figure

from specbench.metrics.summary import Summary
from specbench.report.plots.heatmap import heatmap
from tests.unit.report.plots.axes import drawn, texts, with_caveat


def span(figure: Figure | None) -> tuple[float, float]:
    low, high = drawn(figure)[0].images[0].get_clim()
    assert low is not None
    assert high is not None
    return float(low), float(high)


def test_heatmap_has_a_tile_per_speedup(summary: Summary) -> None:
    panels = drawn(heatmap(summary))
    assert [axes.get_title() for axes in panels] == ["batch size 1", "batch size 4"]
    assert "1.96x" in texts(panels[0])
    assert "1.74 – 2.22" in texts(panels[0])
    assert sum(text.endswith("x") for text in texts(panels[0])) == 9
    assert [t.get_text() for t in panels[0].get_xticklabels()] == [
        "chain",
        "topk 4\n8 tokens",
        "topk 4\n16 tokens",
    ]


def test_heatmap_scale_is_centred_and_ignores_invalid_points(summary: Summary) -> None:
    best = summary.headline.arm
    assert best is not None
    marked = heatmap(with_caveat(summary, best.key.point_id))
    low, high = span(heatmap(summary))
    assert low == -high
    assert span(marked)[1] < high
    assert "incomparable\nbaseline" in texts(drawn(marked)[0])

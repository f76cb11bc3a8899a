"""docs/metrics.md from the catalogue of series: python -m tools.make_metrics_doc."""

from __future__ import annotations

from pathlib import Path

from specbench.collectors.catalogue import (
    CATALOGUE,
    MOST_POINTS,
    MOST_POSITIONS,
    Kind,
    Series,
)

DOC = Path(__file__).parents[1] / "docs" / "metrics.md"

_HEAD = f"""\
# Metrics for Prometheus

Made by `python -m tools.make_metrics_doc` from `specbench/collectors/catalogue.py`.

`specbench sweep --metrics-port [HOST:]PORT` and `specbench serve` answer `GET /metrics`, in text
format 0.0.4 or OpenMetrics 1.0 as the scraper asks. `dashboards/prometheus.yml` scrapes them,
`dashboards/rules.yml` makes accept length, survival, break-even and speedup of the counters.

## What is counted
- The measured requests, failed ones included, warm-up not: what the run directory holds. With no
  failed request the totals of a finished sweep are those of `summary.csv`, to the last step.
- Steps and tokens count when they happen; latencies, prompt tokens, outcome and looping when a
  request ends. A block that Ctrl-C cuts off is in the counters and not in the run directory.
- Counters begin at 0 in each process, also with `--resume`: a jump to what an earlier process
  had counted would be a burst to every `rate()`. `specbench_sweep_blocks_saved` does include
  the blocks of earlier processes.
- A forward is timed once, however many requests took part; a step whose times are not known (an
  outside server) is not timed.
- An outside server that gives sums only has its accepted drafts under `position="unknown"`.
- A series that cannot be known is absent, never 0.

## Ratios
There is no ratio to scrape; divide increases. Accept length over five minutes, pooled:

    1 + sum by (point) (rate(specbench_accepted_tokens_total[5m]))
      / sum by (point) (rate(specbench_verify_steps_total[5m]))

Survival at position i: `specbench_accepted_tokens_total{{position="i"}}` by the same steps.
A process that has ended is stale after its last scrape; ask for what it counted with
`last_over_time(specbench_verify_steps_total[1h])`.

## The end of a run
A sweep keeps `/metrics` up at its end until one more scrape came: for at most twice the longest
of the last gaps between scrapes (5 s when fewer than two came, never over 60 s), or
`--metrics-linger` seconds. A run that may end between two scrapes is given
`--metrics-push URL`: a Pushgateway (`http://HOST:9091`), or remote write where URL ends in
`/api/v1/write`. A port in use or a receiver that is not there is said once; the sweep goes on.

## Cost
Recording a step is a few additions of whole numbers; pages are written when somebody scrapes, and
only the lines of arms that have changed. `python -m benchmarks.recording` measures both.

## Labels
`arm` is `baseline` or `spec`. `point` is a short id such as `k3.bs4` (chain of 3, batch size 4),
with workload or temperature added where a run has several; `specbench_point_info` says what it
is. At most {MOST_POINTS} points and {MOST_POSITIONS} positions per process: more are refused.
Beyond loopback the page wants the API key (`SPECBENCH_API_KEY`) as a bearer token; `serve`
wants it everywhere when it has one.

## Series
| series | type | labels | meaning |
|---|---|---|---|
"""


def document() -> str:
    """The whole page."""
    rows = [_row(series) for series in CATALOGUE.values()]
    histograms = [series for series in CATALOGUE.values() if series.kind is Kind.HISTOGRAM]
    buckets = [f"- `{one.name}`: {', '.join(f'{b:g}' for b in one.buckets)}" for one in histograms]
    return _HEAD + "\n".join(rows) + "\n\n## Buckets\n" + "\n".join(buckets) + "\n"


def _row(series: Series) -> str:
    labels = ", ".join(f"`{label}`" for label in series.labels)
    return f"| `{series.name}` | {series.kind.value} | {labels} | {series.help} |"


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")

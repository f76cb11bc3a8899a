"""Everything that a run directory shows, computed in one call from its facts."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.grid import Dropped
from specbench.metrics.rows import rows
from specbench.metrics.summary import Summary, SummaryInput, summarise
from specbench.report.breakdowns import breakdowns_csv_text
from specbench.report.content import content
from specbench.report.html import html
from specbench.report.markdown import markdown
from specbench.report.outputs import shown_outputs
from specbench.report.page import page_data
from specbench.report.plots import plots
from specbench.report.tables import summary_csv_text
from specbench.trace import ArmRun, Provenance


def build(
    given: SummaryInput, provenance: Provenance, *, dropped: Sequence[Dropped] = ()
) -> dict[str, str | bytes]:
    """The files of a report by name: summary.csv, breakdowns.csv, report.md, report.html, plots.

    Args:
        given: the run's blocks and what is known of them.
        provenance: what is needed to repeat the run.
        dropped: combinations of the grid that did not run, with reasons.

    Raises:
        OutputError: the run holds no measured request.
    """
    return files(summarise(given), provenance, given.runs, dropped=dropped)


def files(
    summary: Summary,
    provenance: Provenance,
    runs: Sequence[ArmRun],
    *,
    dropped: Sequence[Dropped] = (),
) -> dict[str, str | bytes]:
    """The same for a summary that is there already; ``runs`` give the page its outputs."""
    pictures = plots(summary)
    blocks = content(summary, provenance, dropped=dropped, pictures=tuple(pictures))
    return {
        "summary.csv": summary_csv_text(rows(summary)),
        "breakdowns.csv": breakdowns_csv_text(summary),
        "report.md": markdown(blocks),
        "report.html": html(blocks, pictures, page_data(summary, shown_outputs(summary, runs))),
        **pictures,
    }

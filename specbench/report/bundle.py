"""Everything that a run directory shows, computed in one call from its facts."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.grid import Dropped
from specbench.metrics.rows import rows
from specbench.metrics.summary import Summary, SummaryInput, summarise
from specbench.report.content import content
from specbench.report.html import html
from specbench.report.markdown import markdown
from specbench.report.plots import plots
from specbench.report.tables import summary_csv_text
from specbench.trace import Provenance


def build(
    given: SummaryInput, provenance: Provenance, *, dropped: Sequence[Dropped] = ()
) -> dict[str, str | bytes]:
    """The files of a report by name: summary.csv, report.md, report.html and the plots.

    Args:
        given: the run's blocks and what is known of them.
        provenance: what is needed to repeat the run.
        dropped: combinations of the grid that did not run, with reasons.

    Raises:
        OutputError: the run holds no measured request.
    """
    return files(summarise(given), provenance, dropped=dropped)


def files(
    summary: Summary, provenance: Provenance, *, dropped: Sequence[Dropped] = ()
) -> dict[str, str | bytes]:
    """The same for a summary that is there already."""
    pictures = plots(summary)
    blocks = content(summary, provenance, dropped=dropped, pictures=tuple(pictures))
    return {
        "summary.csv": summary_csv_text(rows(summary)),
        "report.md": markdown(blocks),
        "report.html": html(blocks, pictures),
        **pictures,
    }

"""Which requests keep the drafts that were rejected: those whose text the report will show.

The report shows a few outputs of each category, and which arm they will be of is known only at the
end; so the first ones of every arm keep what their drafts said. All others keep counts alone.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from specbench.backends.base import Backend, TellsText
from specbench.report.outputs import MOST_OUTPUTS, PER_CATEGORY, can_be_shown
from specbench.trace import ArmRun, Rejected, RequestTrace

Text = Callable[[Sequence[int]], str]


class Rejections:
    """Fills ``RequestTrace.rejected`` of the first requests of each arm and category.

    Does nothing where ``backend`` cannot say what ids mean.
    """

    def __init__(self, backend: Backend) -> None:
        self._text = backend.text_of if isinstance(backend, TellsText) else None
        self._kept: Counter[tuple[object, ...]] = Counter()

    def keep(self, arm: ArmRun) -> ArmRun:
        """``arm`` with the rejected drafts of the requests that may be shown."""
        if self._text is None:
            return arm
        text = self._text
        key = (arm.point_id, arm.workload, arm.batch_size, arm.temperature)
        return dataclasses.replace(
            arm, requests=tuple(self._filled(trace, key, text) for trace in arm.requests)
        )

    def _filled(self, trace: RequestTrace, key: tuple[object, ...], text: Text) -> RequestTrace:
        of_category = (*key, trace.request.category)
        full = self._kept[of_category] >= PER_CATEGORY or self._kept[key] >= MOST_OUTPUTS
        if full or not can_be_shown(trace) or not any(step.lost for step in trace.steps):
            return trace
        self._kept.update((of_category, key))
        told = [Rejected(ids=step.lost, text=text(step.lost)) for step in trace.steps]
        return dataclasses.replace(trace, rejected=tuple(told))

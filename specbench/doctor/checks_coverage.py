"""What the draft can never say: tokens of the target's own text outside its vocabulary (F13).

Such a token is a miss whatever the draft thinks, so the share of them bounds every conditional
acceptance from above, by category of text (engine-spec 1.8, 10.2).
"""

from __future__ import annotations

import numpy as np
import torch

from specbench.doctor.findings import FAULT_Z, Fact, Finding, Severity, evidence_score
from specbench.doctor.wiring import LEAST_REQUESTS, paired_gain
from specbench.engine.probe_capture import Capture
from specbench.engine.probe_draft import ProbeDraft
from specbench.engine.probe_scores import chain_rows

MOST_UNKNOWN = 0.05


def coverage_finding(draft: ProbeDraft, captured: Capture, accuracy: float) -> Finding | None:
    """A warning when surely more than 5 % of what the target writes is out of the vocabulary.

    Args:
        draft: with its map.
        captured: the target on its own text.
        accuracy: of step 1 as claimed; what is missing to 1 is the loss of which this is a part.
    """
    chain = chain_rows(captured, 1)
    wanted = captured.best[chain.rows + 1]
    unknown = ~torch.isin(wanted, draft.target_ids())
    text = np.concatenate([np.full(b - a, i) for i, (a, b) in enumerate(chain.pieces)])
    missed = unknown.double().cpu().numpy()
    share, error = paired_gain(missed, np.zeros_like(missed), text)
    enough = len(captured.samples) >= LEAST_REQUESTS
    if not enough or share - FAULT_Z * error <= MOST_UNKNOWN:
        return None
    categories = np.array([s.category or "all" for s in captured.samples])[text]
    by = sorted(
        ((float(missed[categories == c].mean()), str(c)) for c in set(categories)), reverse=True
    )
    return Finding(
        code="vocab.coverage",
        severity=Severity.WARNING,
        title=f"{100 * share:.0f} % of what the target writes is not in the draft's vocabulary of "
        f"{len(draft.target_ids())}",
        evidence=(
            Fact(text=", ".join(f"{c} {100 * s:.0f} %" for s, c in by), where="by category"),
            Fact(
                text=f"{100 * share:.1f} ± {100 * error:.1f} % of {len(missed)} tokens, clustered "
                f"by request; {100 * (1 - accuracy):.1f} % of the first drafts are wrong",
                where="the target's own greedy text",
            ),
        ),
        remedy="Train the map on text of this kind; until then no draft of these can be right.",
        figures={"unknown": share, "standard_error": error},
        score=evidence_score(share / max(1 - accuracy, 1e-9), share / error if error else 1e9),
    )

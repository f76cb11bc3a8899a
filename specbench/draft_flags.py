"""The flags that say what a draft's files leave open or say wrongly, the same for every command."""

from __future__ import annotations

import argparse

from specbench.config import D2T_MEANINGS

OFFSETS, DIRECT = D2T_MEANINGS


def add_draft_flags(group: argparse._ActionsContainer) -> None:
    """Declare ``--capture-ids``, ``--capture-default`` and ``--d2t``; None where not given."""
    group.add_argument(
        "--capture-ids",
        metavar="K,K,K",
        help="physical layers of a draft that names none, or wrong ones",
    )
    group.add_argument(
        "--capture-default",
        action="store_true",
        default=None,
        help="take layers 2, n//2, n-3 for a draft that names none",
    )
    group.add_argument(
        "--d2t",
        choices=D2T_MEANINGS,
        help=f"what the draft's vocabulary map holds (default {OFFSETS}; {DIRECT}: target ids)",
    )

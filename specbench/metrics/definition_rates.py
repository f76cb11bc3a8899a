"""The ledger's acceptance rates and per-position figures, tool by tool (see definitions.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specbench.columns import IntArray
from specbench.metrics.acceptance import accept_length, accept_rate_node, conditional, survival
from specbench.metrics.ledger import Definition, LedgerTotals
from specbench.metrics.sums import RequestSums


def rates(requests: Sequence[RequestSums], totals: LedgerTotals) -> tuple[Definition, ...]:
    """Every tool's acceptance rate: accepted over something."""
    a, v = totals.accepted, totals.steps
    node = accept_rate_node(requests)
    ours = accept_length(requests)
    drafted = totals.drafted
    verified = (
        totals.per_request(lambda i: (a[i] + v[i]) / (drafted[i] + v[i])) if drafted else None
    )
    return (
        *_of_static_nodes(totals),
        *_of_drafted(node.value if node else None, totals),
        Definition(
            tool="vLLM",
            field="draft acceptance rate, per cent",
            value=100 * node.value if node else None,
            why="accepted / drafted, as our accept_rate_node (a chain's nodes are its depth)",
        ),
        Definition(
            tool="vLLM V0",
            field="system efficiency",
            value=(sum(a) + sum(v)) / (sum(v) * (totals.depth + 1)) if totals.depth else None,
            why="tokens emitted / most that the steps could emit, (accepted + 1) / (num_steps + 1)",
        ),
        Definition(
            tool="vLLM V0",
            field="draft acceptance rate",
            value=None,
            why="it counted drafts after a rejection, too, where the target agreed with them: no "
            "trace of another engine holds that",
        ),
        Definition(
            tool="NeMo AutoModel",
            field="acceptance rate",
            value=(ours.value - 1) / totals.depth if ours and totals.depth else None,
            why="(accept length - 1) / num_steps, as our accept_rate_depth",
        ),
        Definition(
            tool="AIPerf",
            field="accepted_per_verified",
            value=verified,
            why="(accepted + 1) / (drafted + 1): the bonus is counted on both sides",
        ),
    )


def _of_static_nodes(totals: LedgerTotals) -> tuple[Definition, ...]:
    """SGLang's rates, whose denominator is the configured tree whatever was drafted."""
    a, v, nodes = totals.accepted, totals.steps, totals.nodes
    return (
        Definition(
            tool="SGLang",
            field="spec_accept_rate",
            value=sum(a) / (sum(v) * nodes) if nodes else None,
            why="accepted / (steps x (num_draft_tokens - 1)): a tree's whole node count, of which "
            "one path at most can be kept",
        ),
        Definition(
            tool="SGLang",
            field="meta_info.spec_accept_rate",
            value=totals.per_request(lambda i: a[i] / (v[i] * nodes)) if nodes else None,
            why="the same for each request; up to 0.5.9 beside spec_accept_token_num",
        ),
        Definition(
            tool="SGLang before 2026-04",
            field="spec_accept_rate",
            value=(sum(a) + sum(v)) / (sum(v) * (nodes + 1)) if nodes else None,
            why="(accepted + 1) / (proposed + 1), that is accept length / num_draft_tokens",
        ),
    )


def _of_drafted(node: float | None, totals: LedgerTotals) -> tuple[Definition, ...]:
    """Accepted over what was really drafted."""
    a, drafted = totals.accepted, totals.drafted
    each = (
        totals.per_request(lambda i: a[i] / drafted[i] if drafted[i] else 0.0) if drafted else None
    )
    return (
        Definition(
            tool="vLLM",
            field="per-request draft_acceptance_rate",
            value=each,
            why="accepted / drafted of each request",
        ),
        Definition(
            tool="TensorRT-LLM",
            field="per_request_spec_decode_stats acceptance_rate",
            value=each,
            why="accepted / drafted of each request; it gives no accept length",
        ),
        Definition(
            tool="AIPerf",
            field="acceptance_rate",
            value=node,
            why="accepted / drafted, pooled",
        ),
        Definition(
            tool="llama.cpp",
            field="draft acceptance",
            value=node,
            why="accepted / generated; a draft that stopped early was generated, not verified",
        ),
    )


def positions(requests: Sequence[RequestSums], totals: LedgerTotals) -> tuple[Definition, ...]:
    """Acceptance by draft position, and by the length of a delivery."""
    joint = _chunk_survival(totals.chunks)
    ratios = [
        share / before if before else None
        for before, share in zip((1.0, *joint), joint, strict=False)
    ]
    return (
        Definition(
            tool="vLLM",
            field="per-position acceptance rate",
            value=survival(requests),
            why="unconditional, as our survival; all steps are the denominator, so it is low at "
            "positions that a step with fewer drafts never had",
        ),
        Definition(
            tool="specbench",
            field="conditional",
            value=conditional(requests),
            why="of the steps that got to a position and drafted it",
        ),
        Definition(
            tool="specdec_bench",
            field="joint acceptance",
            value=joint or None,
            why="indexed by chunk length, so index 1 is always 1; the prefill's chunk is a step",
        ),
        Definition(
            tool="specdec_bench",
            field="conditional acceptance",
            value=tuple(ratios) or None,
            why="ratios of its joint acceptance, indexed by chunk length",
        ),
    )


def _chunk_survival(chunks: tuple[IntArray, ...] | None) -> tuple[float, ...]:
    """Share of chunks that hold at least 1, 2, ... tokens."""
    counts = np.bincount(np.concatenate(chunks)) if chunks else np.zeros(0)
    reached = np.cumsum(counts[::-1])[::-1][1:]
    return tuple((reached / counts.sum()).tolist())

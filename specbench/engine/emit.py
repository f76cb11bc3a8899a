"""What a step says of each request: its trace, its text, and how it ended."""

from __future__ import annotations

from specbench.engine.batch import Batch, Emission, Sequence
from specbench.engine.clock import Parts
from specbench.engine.tree import Tree
from specbench.engine.verify import Verdict
from specbench.errors import BackendError
from specbench.trace import Chunk, Finish, StepTrace


def emission(
    sequence: Sequence, trace: StepTrace | None, count: int, text: str, at_ns: int
) -> Emission:
    """``count`` tokens and the text that is certain now; totals when this was the end."""
    chunk = Chunk(at_ns=at_ns, tokens=count, text=text)
    if sequence.finish is None:
        return Emission(handle=sequence.handle, trace=trace, chunk=chunk)
    return Emission(
        handle=sequence.handle,
        trace=trace,
        chunk=chunk,
        finish=sequence.finish,
        usage=sequence.usage(),
        output_ids=tuple(sequence.output),
    )


def step_trace(
    batch: Batch, lane: int, tree: Tree, verdict: Verdict, parts: Parts, number: int, emitted: int
) -> StepTrace:
    """One lane of a step; the parts are those of the whole batch."""
    return StepTrace(
        batch_step=number,
        batch=len(batch.sequences),
        committed=batch.starts[lane] + 1,
        drafted=tree.tokens.shape[1] - 1,
        depth=verdict.depth,
        accepted=verdict.accepted,
        emitted=emitted,
        ranks=verdict.ranks,
        draft_ns=parts.draft_ns,
        extend_ns=parts.extend_ns,
        verify_ns=parts.verify_ns,
        other_ns=parts.other_ns,
        lost=verdict.lost,
    )


def failure(sequence: Sequence) -> Emission:
    """The end of a request whose scores are not finite."""
    error = BackendError(
        f"request {sequence.request.request_id}: the target's scores are not finite after "
        f"{sequence.length} tokens.",
        todo="Check the weights and the dtype.",
    )
    return Emission(handle=sequence.handle, finish=Finish.ERROR, error=error)

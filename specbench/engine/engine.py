"""The step loop: propose, verify, keep, commit, extend. Plain decoding is the same with no tree."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Sequence as Ids

import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.batch import Batch, BatchInputs, Emission, Handle, Sequence, new_chooser
from specbench.engine.clock import CycleClock
from specbench.engine.commit import commit
from specbench.engine.draft import Eagle3Drafter
from specbench.engine.drafter import Drafter, NoDraft, chain_tree
from specbench.engine.emit import emission, failure, step_trace
from specbench.engine.gap import top2_gap
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.lanes import Lanes
from specbench.engine.memory import Memory
from specbench.engine.pair import ModelPair
from specbench.engine.parallel_check import Agreement
from specbench.engine.points import check_point
from specbench.engine.prefill import read_chunk
from specbench.engine.runner import TargetRunner
from specbench.engine.scheduler import Scheduler
from specbench.engine.text import TextStream
from specbench.engine.tree import Tree, chain_shape
from specbench.engine.verify import Verdict, verify
from specbench.errors import EngineError, RequestError
from specbench.request import Request
from specbench.trace import Finish, StepTrace


class Engine:
    """Runs requests on one loaded pair, one step at a time, on the caller's thread.

    ``configure`` chooses the point of speculation and the batch size while nothing runs; models
    and slots stay. ``submit``, ``step`` and ``cancel`` may then be called in any order.
    """

    def __init__(
        self, pair: ModelPair, config: EngineConfig, graph_mode: GraphMode | None = None
    ) -> None:
        """``graph_mode`` None captures on a CUDA device when ``config.use_graphs`` says so."""
        self.pair, self.config = pair, config
        capture = config.use_graphs and pair.device.type == "cuda" and pair.ranks is None
        self.agreement = None if pair.ranks is None else Agreement(pair.ranks, pair.target.capture)
        self.graph_mode = graph_mode or (GraphMode.CAPTURED if capture else GraphMode.EAGER)
        self._handles = itertools.count()
        self._batch_steps = itertools.count()
        wait = functools.partial(torch.cuda.synchronize, pair.device)
        self._clock = CycleClock(wait if pair.device.type == "cuda" else None)
        self.memory = Memory(pair, config)
        self.scheduler = Scheduler(1)
        self.drafter: Drafter = NoDraft(pair.device)
        self._point: tuple[SpecConfig, int] | None = None
        self.configure(SpecConfig.baseline(), 1)

    def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """Switch to a point, with at most ``batch_size`` sequences together.

        Where the memory for it does not suffice, the point before is set up again.

        Raises:
            ConfigError: as ``check_point``.
            EngineError: requests are in flight.
        """
        if not self.idle:
            raise EngineError("configure was called while requests are in flight.")
        check_point(self.pair, self.config, spec, batch_size)
        try:
            self._set_up(spec, batch_size)
        except (MemoryError, RuntimeError):
            if self._point is not None:
                self.memory = Memory(self.pair, self.config)
                self._set_up(*self._point)
            raise
        self._point = spec, batch_size

    def _set_up(self, spec: SpecConfig, batch_size: int) -> None:
        memory, device = self.memory, self.pair.device
        memory.ensure(spec)
        self.spec, self.scheduler = spec, Scheduler(batch_size)
        self._budget, reuse = self.config.prefill_chunk, self.config.prefix_reuse
        self._lanes = Lanes(memory.target, self.config.max_batch_size, reuse=reuse)
        self.graphs = graphs = Graphs(device, self.graph_mode)
        columns = memory.target.capacity if graphs.fixed else None
        self._inputs = BatchInputs(batch_size, device, columns, sink=self.config.max_len)
        self.runner = TargetRunner(
            self.pair.target, memory.target, memory.target_rope, spec, graphs
        )
        self._root = chain_tree(torch.zeros(1, 1, dtype=torch.int64), chain_shape(1, device))
        self.drafter = NoDraft(device)
        if not spec.is_baseline and self.pair.draft and memory.draft and memory.draft_rope:
            self.drafter = Eagle3Drafter(
                self.pair.draft, memory.draft, memory.draft_rope, spec, graphs, self.config.rules
            )

    @property
    def idle(self) -> bool:
        """True when nothing waits and nothing runs."""
        return self.scheduler.idle

    @property
    def max_len(self) -> int:
        """Longest prompt and output together, in tokens."""
        return self.config.max_len

    def submit(self, request: Request) -> Handle:
        """Queue a request.

        Raises:
            RequestError: the prompt is empty, holds unknown ids, or is too long, for the lanes or
                for the draft's positions.
        """
        prompt, vocab = self.pair.codec.prompt_ids(request), self.pair.target_spec.vocab
        sampling = request.sampling
        if not all(0 <= token < vocab for token in prompt):
            raise RequestError(
                f"request {request.request_id} holds token ids outside 0..{vocab - 1}."
            )
        if len(prompt) + sampling.max_tokens > self.max_len:
            raise RequestError(
                f"request {request.request_id}: {len(prompt)} prompt tokens and max_tokens="
                f"{sampling.max_tokens} exceed max_len={self.max_len}.",
                todo="Shorten the prompt, lower max_tokens, or raise max_len.",
            )
        self._check_draft(request, len(prompt) + sampling.max_tokens)
        eos = () if sampling.ignore_eos else self.pair.target_spec.eos_ids
        sequence = Sequence(
            handle=next(self._handles),
            request=request,
            prompt=prompt,
            stop_ids=frozenset((*eos, *sampling.stop_token_ids)),
            text=TextStream(self.pair.codec, sampling.stop),
            chooser=new_chooser(request, self.config.rules),
        )
        self.scheduler.add(sequence)
        return sequence.handle

    def _check_draft(self, request: Request, length: int) -> None:
        """Beyond the positions it knows, a draft does not fail: its acceptance falls, unseen."""
        if self.spec.is_baseline or self.pair.draft_spec is None:
            return
        most = self.pair.draft_spec.longest
        if length > most:
            raise RequestError(
                f"request {request.request_id}: prompt and max_tokens make {length} tokens, the "
                f"draft's max_position_embeddings or sliding window is {most}.",
                todo="Shorten the prompt, lower max_tokens, or run it without the draft.",
            )

    @torch.inference_mode()
    def cancel(self, handle: Handle) -> None:
        """Drop a request and free its lane; a handle that is gone is fine."""
        sequence = self.scheduler.find(handle)
        if sequence is not None:
            self._leave(sequence)

    def step(self) -> list[Emission]:
        """Read a chunk of a prompt if a lane is free, else run one cycle of the batch.

        A caller that steps in a loop enters ``torch.inference_mode`` itself, once: entering it at
        every step costs as much as a dozen small operations.
        """
        if torch.is_inference_mode_enabled():
            return self._step()
        with torch.inference_mode():
            return self._step()

    def _step(self) -> list[Emission]:
        filling = self.scheduler.filling or self._admit()
        if filling is not None and (self._budget > 0 or not self.scheduler.running):
            return self._prefill(filling)
        self._budget = self.config.prefill_chunk
        return self._cycle() if self.scheduler.running else []

    def _admit(self) -> Sequence | None:
        sequence = self.scheduler.admit()
        if sequence is not None:
            self._lanes.enter(sequence, self.scheduler.running, self.drafter)
        return sequence

    def _prefill(self, sequence: Sequence) -> list[Emission]:
        """Read a chunk of a prompt; after the last, choose the first token and join the batch.

        Between two cycles of the batch, chunks are read until ``prefill_chunk`` tokens are spent:
        many short prompts, or one piece of a long one.
        """
        begun, busy, rows = time.perf_counter_ns(), bool(self.scheduler.running), sequence.committed
        chunk = self.config.prefill_chunk
        check = None if self.agreement is None else self.agreement.prompt
        verdict = read_chunk(self.runner, self.drafter, sequence, chunk, self._root, check)
        self._budget -= sequence.committed - rows
        emissions = []
        if verdict is not None and not verdict.finite:
            emissions.append(self._fail(sequence))
        elif verdict is not None:
            self.scheduler.join()
            emissions.append(self._emission(sequence, None, *commit(sequence, verdict.tokens)))
        self._clock.exclude(begun, resume=busy)
        return emissions

    def _cycle(self) -> list[Emission]:
        clock = self._clock
        batch = self._inputs.batch(self.scheduler.running)
        clock.start()
        tree = self.drafter.propose(batch)
        clock.draft()
        scores = self.runner.verify(batch, tree)
        verdicts = verify(scores.logits, tree, batch.choosers, scores.best)
        if self.agreement is not None:
            self.agreement.cycle(batch.sequences, tree.tokens, verdicts, scores.features)
        clock.verify()
        emitted = self._commit(batch, tree, verdicts)
        if any(s.finish is None for s in batch.sequences):
            clock.start()
            self.drafter.extend(batch, scores.features, verdicts)
            clock.extend()
        return self._emit(batch, tree, verdicts, emitted)

    def _commit(self, batch: Batch, tree: Tree, verdicts: Ids[Verdict]) -> list[tuple[int, str]]:
        """Keep the accepted slots and append the tokens: per lane what the user gets."""
        results = []
        for sequence, verdict in zip(batch.sequences, verdicts, strict=True):
            if not verdict.finite:
                sequence.finish = Finish.ERROR
                results.append((0, ""))
                continue
            self.memory.target.keep(sequence.lane, sequence.committed, verdict.path)
            sequence.settled = sequence.committed
            sequence.committed += len(verdict.path)
            sequence.count(tree.tokens.shape[1] - 1, verdict.accepted)
            results.append(commit(sequence, verdict.tokens))
        return results

    def _emit(
        self, batch: Batch, tree: Tree, verdicts: Ids[Verdict], emitted: Ids[tuple[int, str]]
    ) -> list[Emission]:
        parts, number = self._clock.end(), next(self._batch_steps)
        # before any lane moves: what a broken one holds would stay where the move found it
        self._lanes.wipe([i for i, v in enumerate(verdicts) if not v.finite], self.drafter)
        emissions = []
        for lane, sequence in enumerate(batch.sequences):
            verdict, (count, text) = verdicts[lane], emitted[lane]
            if not verdict.finite:
                emissions.append(self._fail(sequence))
                continue
            trace = step_trace(batch, lane, tree, verdict, parts, number, count)
            emissions.append(self._emission(sequence, trace, count, text))
        return emissions

    def _emission(
        self, sequence: Sequence, trace: StepTrace | None, count: int, text: str
    ) -> Emission:
        told = emission(sequence, trace, count, text, self._clock.now())
        if sequence.finish is not None:
            self._leave(sequence)
        return told

    def _fail(self, sequence: Sequence) -> Emission:
        """End a request whose scores are not finite, and wipe what it left in the caches."""
        self._leave(sequence, whole=False)
        return failure(sequence)

    def _leave(self, sequence: Sequence, *, whole: bool = True) -> None:
        """``whole`` False wipes its lane. A prompt cut short has not been looked at, so it is."""
        lane = sequence.lane
        whole = whole and sequence is not self.scheduler.filling
        moves = self.scheduler.leave(sequence)
        if lane >= 0:
            self._lanes.leave(sequence, lane, moves, self.drafter, whole=whole)

    def close(self) -> None:
        """Give up what lies outside this process: nothing, but for an engine of several ranks."""

    def audit(self) -> None:
        """Check lanes, lengths and slots (invariant I1 of engine-spec 13.2).

        Raises:
            EngineError: names what does not hold.
        """
        self.scheduler.audit(self.memory.target.capacity)

    @property
    def slots_in_use(self) -> int:
        """Committed slots of all sequences with a lane; 0 when idle."""
        return sum(s.committed for s in self.scheduler.holders)

    @torch.inference_mode()
    def top2_gap(self, request: Request, output_ids: Ids[int]) -> float:
        """(first - second) / max(|first|, 1) of the target's scores after prompt and output.

        From a plain forward in slots of its own, so that it can be asked while others run.
        """
        return top2_gap(self.pair, self.config, [*self.pair.codec.prompt_ids(request), *output_ids])

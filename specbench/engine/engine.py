"""The step loop: propose, verify, keep, commit, extend. Plain decoding is the same with no tree."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as Ids
from dataclasses import replace

import torch

from specbench.config import EngineConfig, SpecConfig
from specbench.engine.batch import Batch, BatchInputs, Emission, Handle, Sequence, new_chooser
from specbench.engine.clock import CycleClock
from specbench.engine.commit import commit
from specbench.engine.draft import Drafter, Eagle3Drafter, NoDraft, chain_tree
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.memory import Memory
from specbench.engine.pair import ModelPair
from specbench.engine.runner import TargetRunner, chunks
from specbench.engine.scheduler import Scheduler
from specbench.engine.text import TextStream
from specbench.engine.tree import Tree, chain_shape
from specbench.engine.verify import Verdict, verify
from specbench.errors import BackendError, ConfigError, EngineError, RequestError
from specbench.request import Request
from specbench.trace import Chunk, Finish, StepTrace


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
        capture = config.use_graphs and pair.device.type == "cuda"
        self.graph_mode = graph_mode or (GraphMode.CAPTURED if capture else GraphMode.EAGER)
        self._handles = itertools.count()
        self._batch_steps = itertools.count()
        on_device = pair.device.type == "cuda"
        self._clock = CycleClock(torch.cuda.synchronize if on_device else None)
        self.memory = Memory(pair, config)
        self.scheduler = Scheduler(1)
        self.drafter: Drafter = NoDraft(pair.device)
        self.configure(SpecConfig.baseline(), 1)

    def configure(self, spec: SpecConfig, batch_size: int) -> None:
        """Switch to a point, with at most ``batch_size`` sequences together.

        Raises:
            ConfigError: there is no draft, or the batch exceeds max_batch_size.
            EngineError: requests are in flight.
        """
        if not self.idle:
            raise EngineError("configure was called while requests are in flight.")
        if not 1 <= batch_size <= self.config.max_batch_size:
            raise ConfigError(
                f"batch_size={batch_size} with max_batch_size={self.config.max_batch_size}.",
                todo="Raise max_batch_size, or lower the batch size.",
            )
        if not spec.is_baseline and self.pair.draft is None:
            raise ConfigError(f"num_steps={spec.num_steps} needs a draft.", todo="Give --draft.")
        memory, device = self.memory, self.pair.device
        memory.ensure(spec)
        self.spec, self.scheduler = spec, Scheduler(batch_size)
        self.graphs = graphs = Graphs(device, self.graph_mode)
        columns = memory.target.capacity if graphs.fixed else None
        self._inputs = BatchInputs(batch_size, device, columns)
        self.runner = TargetRunner(
            self.pair.target, memory.target, memory.target_rope, spec, graphs
        )
        self._root = chain_tree(torch.zeros(1, 1, dtype=torch.int64), chain_shape(1, device))
        self.drafter = NoDraft(device)
        if not spec.is_baseline and self.pair.draft and memory.draft and memory.draft_rope:
            self.drafter = Eagle3Drafter(
                self.pair.draft, memory.draft, memory.draft_rope, spec, graphs
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
            RequestError: the prompt is empty, holds unknown ids, or is too long.
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
        eos = () if sampling.ignore_eos else self.pair.target_spec.eos_ids
        sequence = Sequence(
            handle=next(self._handles),
            request=request,
            prompt=prompt,
            stop_ids=frozenset((*eos, *sampling.stop_token_ids)),
            text=TextStream(self.pair.codec, sampling.stop),
            chooser=new_chooser(request),
        )
        self.scheduler.add(sequence)
        return sequence.handle

    @torch.inference_mode()
    def cancel(self, handle: Handle) -> None:
        """Drop a request and free its lane; a handle that is gone is fine."""
        sequence = self.scheduler.find(handle)
        if sequence is not None:
            self._leave(sequence)

    def step(self) -> list[Emission]:
        """Prefill one waiting request if a lane is free, else run one cycle of the batch.

        A caller that steps in a loop enters ``torch.inference_mode`` itself, once: entering it at
        every step costs as much as a dozen small operations.
        """
        if torch.is_inference_mode_enabled():
            return self._step()
        with torch.inference_mode():
            return self._step()

    def _step(self) -> list[Emission]:
        sequence = self.scheduler.admit()
        if sequence is not None:
            return self._prefill(sequence)
        if not self.scheduler.running:
            return []
        clock = self._clock
        batch = self._inputs.batch(self.scheduler.running)
        clock.start()
        tree = self.drafter.propose(batch)
        clock.draft()
        scores = self.runner.verify(batch, tree)
        verdicts = verify(scores.logits, tree, batch.choosers)
        clock.verify()
        lengths = [s.length for s in batch.sequences]
        emitted = self._commit(batch, tree, verdicts)
        if any(s.finish is None for s in batch.sequences):
            clock.start()
            self.drafter.extend(batch, scores.features, verdicts)
            clock.extend()
        return self._emit(batch, tree, verdicts, lengths, emitted)

    def _prefill(self, sequence: Sequence) -> list[Emission]:
        """Run a whole prompt, choose the first token and start the draft's cache."""
        begun, verdict = time.perf_counter_ns(), None
        busy = len(self.scheduler.running) > 1
        prompt, lane = sequence.prompt, sequence.lane
        for start, tokens, last in chunks(prompt):
            scores = self.runner.prefill(lane, start, tokens, last=last)
            following = [*prompt[start + 1 : start + len(tokens) + 1]]
            if last:
                (verdict,) = verify(scores.logits, self._root, [sequence.chooser])
                if not verdict.finite:
                    break
                following.append(verdict.tokens[0])
            self.drafter.prefill(lane, start, following, scores.features, last=last)
        if verdict is None or not verdict.finite:
            emissions = [self._fail(sequence)]
        else:
            sequence.committed = len(prompt)
            count, text = commit(sequence, verdict.tokens)
            emissions = [self._emission(sequence, None, count, text)]
        self._clock.exclude(begun, resume=busy)
        return emissions

    def _commit(self, batch: Batch, tree: Tree, verdicts: Ids[Verdict]) -> list[tuple[int, str]]:
        """Keep the accepted slots and append the tokens: per lane what the user gets."""
        results = []
        for sequence, verdict in zip(batch.sequences, verdicts, strict=True):
            if not verdict.finite:
                sequence.finish = Finish.ERROR
                results.append((0, ""))
                continue
            self.memory.target.keep(sequence.lane, sequence.committed, verdict.path)
            sequence.committed += len(verdict.path)
            sequence.count(tree.tokens.shape[1] - 1, verdict.accepted)
            results.append(commit(sequence, verdict.tokens))
        return results

    def _emit(
        self,
        batch: Batch,
        tree: Tree,
        verdicts: Ids[Verdict],
        lengths: Ids[int],
        emitted: Ids[tuple[int, str]],
    ) -> list[Emission]:
        parts, number = self._clock.end(), next(self._batch_steps)
        emissions = []
        for lane, sequence in enumerate(batch.sequences):
            verdict, (count, text) = verdicts[lane], emitted[lane]
            if not verdict.finite:
                emissions.append(self._fail(sequence))
                continue
            trace = StepTrace(
                batch_step=number,
                batch=batch.size,
                committed=lengths[lane],
                drafted=tree.tokens.shape[1] - 1,
                depth=verdict.depth,
                accepted=verdict.accepted,
                emitted=count,
                ranks=verdict.ranks,
                draft_ns=parts.draft_ns,
                extend_ns=parts.extend_ns,
                verify_ns=parts.verify_ns,
                other_ns=parts.other_ns,
            )
            emissions.append(self._emission(sequence, trace, count, text))
        return emissions

    def _emission(
        self, sequence: Sequence, trace: StepTrace | None, count: int, text: str
    ) -> Emission:
        chunk = Chunk(at_ns=self._clock.now(), tokens=count, text=text)
        if sequence.finish is None:
            return Emission(handle=sequence.handle, trace=trace, chunk=chunk)
        self._leave(sequence)
        return Emission(
            handle=sequence.handle,
            trace=trace,
            chunk=chunk,
            finish=sequence.finish,
            usage=sequence.usage(),
            output_ids=tuple(sequence.output),
        )

    def _fail(self, sequence: Sequence) -> Emission:
        """End a request whose scores are not finite, and wipe what it left in the caches."""
        self.memory.target.clear(sequence.lane)
        self.drafter.clear(sequence.lane)
        self._leave(sequence)
        error = BackendError(
            f"request {sequence.request.request_id}: the target's scores are not finite after "
            f"{sequence.length} tokens.",
            todo="Check the weights and the dtype.",
        )
        return Emission(handle=sequence.handle, finish=Finish.ERROR, error=error)

    def _leave(self, sequence: Sequence) -> None:
        moved = self.scheduler.leave(sequence)
        if moved is not None:
            self.memory.target.move(*moved)
            self.drafter.move(*moved)

    def audit(self) -> None:
        """Check lanes, lengths and slots (invariant I1 of engine-spec 13.2).

        Raises:
            EngineError: names what does not hold.
        """
        self.scheduler.audit(self.memory.target.capacity)

    @property
    def slots_in_use(self) -> int:
        """Committed slots of all running sequences; 0 when idle."""
        return sum(s.committed for s in self.scheduler.running)

    @torch.inference_mode()
    def top2_gap(self, request: Request, output_ids: Ids[int]) -> float:
        """Relative gap of the two best target scores after the prompt and ``output_ids``.

        (first - second) / max(|first|, 1), from a plain forward over the whole sequence in slots
        of its own, so that it can be asked while others run.
        """
        tokens = [*self.pair.codec.prompt_ids(request), *output_ids]
        memory = Memory(self.pair, replace(self.config, max_batch_size=1, max_len=len(tokens)))
        runner = TargetRunner(
            self.pair.target,
            memory.target,
            memory.target_rope,
            SpecConfig.baseline(),
            Graphs(self.pair.device, GraphMode.EAGER),
        )
        for start, part, last in chunks(tokens):
            scores = runner.prefill(0, start, part, last=last)
        first, second = map(float, scores.logits[0].double().topk(2)[0].tolist())
        return (first - second) / max(abs(first), 1.0)

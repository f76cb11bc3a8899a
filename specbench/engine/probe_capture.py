"""All that a probe needs of the target, taken once: every residual stream and every argmax.

Rows of all texts lie after one another. Memory is counted before anything is run, and the target
runs in chunks (engine-spec 3.7, 10.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specbench.checkpoint import read_target
from specbench.config import EngineConfig, SpecConfig
from specbench.engine.graphs import GraphMode, Graphs
from specbench.engine.memory import Memory
from specbench.engine.models.attention import attend, store
from specbench.engine.models.base import Features, Span
from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.layers import feed_forward
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.models.weights import load_tensors
from specbench.engine.pair import ModelPair
from specbench.engine.probe_text import Sample
from specbench.engine.runner import TargetRunner, chunks
from specbench.engine.wiring import Tap
from specbench.errors import ConfigError

MOST_BYTES = 4 * 1024**3
MOST_ROWS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What the target did on some texts; T rows in all, one per token.

    ``features`` [T, Ht] by (tap, physical index); ``normed`` [T, Ht] is the last state after the
    final norm. ``best`` [T] is the target's argmax after each row, ``best_known`` [T] the argmax
    among the draft's vocabulary, ``gap`` [T] the relative distance of the two best scores.
    ``starts`` are the first rows of the texts.
    """

    samples: tuple[Sample, ...]
    starts: tuple[int, ...]
    tokens: Tensor
    features: Mapping[tuple[Tap, int], Tensor]
    normed: Tensor
    best: Tensor
    best_known: Tensor
    gap: Tensor

    @property
    def rows(self) -> int:
        """T."""
        return int(self.tokens.shape[0])

    def positions(self) -> Tensor:
        """Position of every row in its text [T]."""
        places = [torch.arange(len(s.tokens), device=self.tokens.device) for s in self.samples]
        return torch.cat(places)

    def in_reply(self) -> Tensor:
        """Rows that a verify makes, not a prefill [T]."""
        edges = [s.prompt_len for s in self.samples]
        places = torch.tensor(edges, device=self.tokens.device)
        lengths = torch.tensor([len(s.tokens) for s in self.samples], device=self.tokens.device)
        return self.positions() >= places.repeat_interleave(lengths)

    def spans(self) -> list[tuple[int, int]]:
        """First row and end of every text."""
        return [(at, at + len(s.tokens)) for at, s in zip(self.starts, self.samples, strict=True)]


def needed_bytes(rows: int, streams: int, width: int, itemsize: int) -> int:
    """Memory of ``streams`` captured streams and the last normed state."""
    return rows * (streams + 1) * width * itemsize


@torch.inference_mode()
def capture(
    pair: ModelPair,
    samples: Sequence[Sample],
    *,
    vocab_ids: Tensor | None = None,
    layers: Sequence[int] | None = None,
    taps: Sequence[Tap] = (Tap.RESIDUAL,),
) -> Capture:
    """Run the target over texts and keep its streams in the pair's dtype.

    Args:
        pair: loaded models; the target must compute in float32 or wider for exact figures.
        samples: texts.
        vocab_ids: target ids that the draft knows [Vd]; None for all.
        layers: physical indices to keep; None for 0..n.
        taps: which taps of them. ``Tap.MLP`` is left out where the target's forward cannot be
            opened (compiled kernels).

    Raises:
        ConfigError: the streams would not fit into memory, or an index is out of range.
    """
    spec, n = pair.target_spec, pair.target_spec.n_layers
    kept = tuple(range(n + 1)) if layers is None else tuple(sorted(set(layers)))
    if not all(0 <= k <= n for k in kept):
        raise ConfigError(f"layers {list(kept)}.", expected=f"Physical indices in 0..{n}.")
    rows = sum(len(s.tokens) for s in samples)
    size = needed_bytes(rows, len(kept) * len(taps), spec.shape.hidden, pair.dtype.itemsize)
    if size > MOST_BYTES or rows > MOST_ROWS:
        raise ConfigError(
            f"{rows} rows of {len(kept)} layers need {size / 1024**3:.1f} GiB.",
            expected=f"At most {MOST_BYTES / 1024**3:.0f} GiB and {MOST_ROWS} rows.",
            todo="Give fewer requests, fewer tokens, or fewer --layers.",
        )
    longest = max(len(s.tokens) for s in samples)
    memory = Memory(pair, EngineConfig(max_batch_size=1, max_len=longest))
    recorder = _Recorder(pair.target, kept, Tap.MLP in taps)
    graphs = Graphs(pair.device, GraphMode.EAGER)
    runner = TargetRunner(
        recorder, memory.target, memory.target_rope, SpecConfig.baseline(), graphs
    )
    decided = Decided(vocab_ids)
    for sample in samples:
        for start, part, last in chunks(sample.tokens):
            runner.prefill(0, start, part, last=last)
            decided.add(pair.target.logits(recorder.last))
    return _assembled(pair, samples, recorder, decided, taps)


def _assembled(
    pair: ModelPair,
    samples: Sequence[Sample],
    recorder: _Recorder,
    decided: Decided,
    taps: Sequence[Tap],
) -> Capture:
    streams = {(Tap.RESIDUAL, k): torch.cat(v) for k, v in recorder.streams.items()}
    streams |= {(Tap.MLP, k): torch.cat(v) for k, v in recorder.mlp.items()}
    last = torch.cat(recorder.finals)
    weights, eps, n = norm_weights(pair), pair.target_spec.shape.eps, pair.target_spec.n_layers
    if Tap.NORMED in taps:
        residual = [(k, x) for (tap, k), x in streams.items() if tap is Tap.RESIDUAL]
        streams |= {(Tap.NORMED, k): rms_norm(x, weights[k], eps) for k, x in residual}
    lengths = [len(s.tokens) for s in samples]
    flat = [token for s in samples for token in s.tokens]
    return Capture(
        samples=tuple(samples),
        starts=tuple(sum(lengths[:i]) for i in range(len(lengths))),
        tokens=torch.tensor(flat, device=pair.device),
        features=streams,
        normed=rms_norm(last, weights[n], eps),
        best=torch.cat(decided.best),
        best_known=torch.cat(decided.known),
        gap=torch.cat(decided.gap),
    )


def norm_weights(pair: ModelPair) -> dict[int, Tensor]:
    """Weight [H] of the norm that reads physical index k: of layer k, and the final one at n."""
    layers = pair.target_spec.n_layers
    names = {f"model.layers.{k}.input_layernorm.weight": k for k in range(layers)}
    names["model.norm.weight"] = layers
    _, folder = read_target(pair.inputs["path:target"])
    wanted = {name: entry for name, entry in folder.tensors.items() if name in names}
    found = load_tensors(replace(folder, tensors=wanted), pair.dtype, pair.device)
    return {names[name]: weight for name, weight in found.items()}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension, in the dtype of ``x``."""
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


@dataclass(slots=True)
class Decided:
    """Argmax, argmax among known ids, and gap, chunk by chunk of one sequence of scores."""

    vocab_ids: Tensor | None
    best: list[Tensor] = field(default_factory=list)
    known: list[Tensor] = field(default_factory=list)
    gap: list[Tensor] = field(default_factory=list)

    def add(self, logits: Tensor) -> None:
        """Take in the scores [rows, V] of the next rows."""
        best = logits.argmax(-1)
        top = logits.double().topk(2)[0]
        self.best.append(best)
        self.gap.append((top[:, 0] - top[:, 1]) / top[:, 0].abs().clamp(min=1.0))
        if self.vocab_ids is None:
            self.known.append(best)
        else:
            self.known.append(self.vocab_ids[logits[:, self.vocab_ids].argmax(-1)])


class _Recorder:
    """A target that hands out nothing and keeps every stream: the runner's stand-in."""

    def __init__(
        self, target: LlamaTarget | DecoderTarget, layers: tuple[int, ...], mlp: bool
    ) -> None:
        self._target, self.capture = target, layers
        self._mlp = mlp and hasattr(target, "blocks")
        self.streams: dict[int, list[Tensor]] = {k: [] for k in layers}
        self.mlp: dict[int, list[Tensor]] = {k: [] for k in layers if k > 0} if self._mlp else {}
        self.finals: list[Tensor] = []

    @property
    def last(self) -> Tensor:
        """States of the newest chunk before the final norm [rows, H]."""
        return self.finals[-1]

    @property
    def windowed(self) -> bool:
        """As the target."""
        return self._target.windowed

    def new_features(self, rows: int) -> Features | None:
        """Room for all streams of ``rows`` rows."""
        width, like = self._target.spec.shape.hidden, self._target.embedding
        tensor = like.new_zeros(rows, len(self.capture) * width)
        parts = {k: tensor[:, j * width : (j + 1) * width] for j, k in enumerate(self.capture)}
        return Features(tensor, parts)

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        """The target's forward; keeps what it captured."""
        hidden = self._target.forward(tokens, span, batch, features)
        for k, part in (features.parts if features else {}).items():
            self.streams[k].append(part)
        self.finals.append(hidden.clone())
        if self._mlp:
            self._keep_mlp(tokens, span, batch)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's scores."""
        return self._target.logits(hidden)

    def _keep_mlp(self, tokens: Tensor, span: Span, batch: int) -> None:
        """The forward once more, opened before each MLP; it writes the same keys and values."""
        target = self._target
        assert isinstance(target, LlamaTarget)  # others have no blocks, and no such tap
        scratch = target.scratch(batch, tokens.shape[0] // batch)
        x = target.embedding.index_select(0, tokens)
        for index, block in enumerate(target.blocks):
            block.qkv.into(block.input_norm(x), scratch.qkv)
            store(scratch, span, index)
            block.out.add_to(x, attend(scratch, span, index))
            before = x.clone()
            feed_forward(block, x, scratch)
            if index + 1 in self.mlp:
                self.mlp[index + 1].append(x - before)

"""Targets that hand out wrong features, for tests of the doctor; ``faults`` switches them on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from specbench.engine.batch import Batch
from specbench.engine.engine import Engine
from specbench.engine.models.base import Features, Span
from specbench.engine.models.decoder import DecoderTarget
from specbench.engine.models.llama import LlamaTarget
from specbench.engine.probe_capture import norm_weights, rms_norm
from specbench.engine.runner import Scores, TargetRunner
from specbench.engine.tree import Tree

Slots = tuple[int, ...]
Spoil = Callable[[Tensor, Tensor], None]


class WrongCapture:
    """A target that hands out other layers than asked: ``slots`` after a prefill, ``verify`` after
    a verify; ``spoil`` may change a row of features [rows, A·H] in place."""

    def __init__(
        self,
        target: LlamaTarget | DecoderTarget,
        prefill: Slots,
        verify: Slots,
        spoil: Spoil | None = None,
        spoil_verify: Spoil | None = None,
    ) -> None:
        self._target, self._slots = target, {False: prefill, True: verify}
        self._spoil = {False: spoil, True: spoil_verify or spoil}
        self.capture = target.capture
        self.verifying = False

    @property
    def windowed(self) -> bool:
        """As the target."""
        return self._target.windowed

    def new_features(self, rows: int) -> Features | None:
        """The right room."""
        return self._target.new_features(rows)

    def forward(self, tokens: Tensor, span: Span, batch: int, features: Features | None) -> Tensor:
        """The right forward, with the wrong streams handed out."""
        layers, width = range(self._target.spec.n_layers + 1), self._target.spec.shape.hidden
        whole = self._target.embedding.new_zeros(tokens.shape[0], len(layers) * width)
        parts = {k: whole[:, k * width : (k + 1) * width] for k in layers}
        hidden = self._target.forward(tokens, span, batch, Features(whole, parts))
        if features is not None:
            slots = self._slots[self.verifying]
            features.tensor.copy_(torch.cat([parts[k] for k in slots], -1))
            spoil = self._spoil[self.verifying]
            if spoil is not None:
                spoil(features.tensor, hidden)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """The target's scores."""
        return self._target.logits(hidden)


class MarkedRunner(TargetRunner):
    """A runner that tells a wrong target which phase it is in."""

    wrong: WrongCapture

    def verify(self, batch: Batch, tree: Tree) -> Scores:
        """One forward over all trees, with the target told that it is a verify."""
        self.wrong.verifying = True
        scores = super().verify(batch, tree)
        self.wrong.verifying = False
        return scores


def capture(
    engine: Engine,
    prefill: Slots,
    verify: Slots | None = None,
    spoil: Spoil | None = None,
    spoil_verify: Spoil | None = None,
) -> None:
    """Let an engine's target hand out other layers, or the right ones changed in place."""
    wrong = WrongCapture(engine.pair.target, prefill, verify or prefill, spoil, spoil_verify)
    memory = engine.memory
    runner = MarkedRunner(wrong, memory.target, memory.target_rope, engine.spec, engine.graphs)
    runner.wrong = wrong
    engine.runner = runner


def shifted(engine: Engine, by: int) -> Slots:
    """The right layers, all moved."""
    return tuple(k + by for k in engine.pair.target.capture)


def default(engine: Engine) -> Slots:
    """What engines take when no ids are found."""
    n = engine.pair.target_spec.n_layers
    return 2, n // 2, n - 3


def alias(engine: Engine) -> None:
    """All chunks are one buffer, overwritten by the last layer (F54)."""
    own = engine.pair.target.capture
    capture(engine, (max(own),) * len(own))


def spoilt(engine: Engine, spoil: Callable[[Tensor, Tensor], None]) -> None:
    """The right layers, changed in place."""
    capture(engine, engine.pair.target.capture, spoil=spoil)


def scaled(tensor: Tensor, hidden: Tensor) -> None:
    """A partial sum of one of two ranks (F34): half of each stream."""
    tensor.mul_(0.5)


def clipped(tensor: Tensor, hidden: Tensor) -> None:
    """A narrow dtype clips the stream (F45)."""
    tensor.clamp_(-1.0, 1.0)


def lost(tensor: Tensor, hidden: Tensor) -> None:
    """A wrapper of the target drops the features (F7)."""
    tensor.zero_()


def lost_stages(tensor: Tensor, hidden: Tensor) -> None:
    """Only the last pipeline stage captures (F37): the other chunks are zero."""
    width = hidden.shape[-1]
    tensor[:, :-width].zero_()


def normed(engine: Engine) -> None:
    """Streams are taken after the norm in front of the next layer (F55)."""
    spec, weights = engine.pair.target_spec, norm_weights(engine.pair)
    layers = engine.pair.target.capture

    def spoil(tensor: Tensor, hidden: Tensor) -> None:
        parts = tensor.chunk(len(layers), -1)
        pieces = [
            rms_norm(x, weights[k], spec.shape.eps) for k, x in zip(layers, parts, strict=True)
        ]
        tensor.copy_(torch.cat(pieces, -1))

    spoilt(engine, spoil)


def swapped_lanes(engine: Engine) -> None:
    """A verify of several sequences hands each one the rows of the next (F36)."""
    nodes = engine.spec.num_draft_tokens

    def spoil(tensor: Tensor, hidden: Tensor) -> None:
        lanes = tensor.shape[0] // nodes
        if lanes > 1 and tensor.shape[0] == lanes * nodes:
            rolled = tensor.view(lanes, nodes, -1).roll(1, 0)
            tensor.copy_(rolled.reshape(tensor.shape))

    own = engine.pair.target.capture
    capture(engine, own, spoil_verify=spoil)

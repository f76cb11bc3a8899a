"""A draft scored at every position, under any wiring: an implementation apart from the engine's.

Whole texts, no cache, weights as they are in the file, half-split rotation. Every position i starts
its own chain: the rows of true features up to i give keys as after an extend, and the chain adds
its own keys, which no other chain sees (engine-spec 11.4). One forward per step does all positions
of all texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specbench.checkpoint import read_draft
from specbench.checkpoint.draft_names import by_canonical
from specbench.checkpoint.vocab_map import DIRECT
from specbench.engine.models.rope import factors, frequencies
from specbench.engine.models.weights import load_tensors, offsets_of
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, rms_norm
from specbench.engine.probe_scores import Chain, ScoreParts, Scores, chain_rows
from specbench.engine.wiring import Tap, Wiring
from specbench.errors import CheckpointError, ConfigError
from specbench.modelspec import DraftSpec, RopeSpec

_AT = "midlayer"
MOST_QUERIES = 512


@dataclass(frozen=True, slots=True)
class Kept:
    """Keys and values [rows, Hkv, D]."""

    keys: Tensor
    values: Tensor

    def pick(self, rows: Tensor) -> Kept:
        """Those of ``rows``."""
        return Kept(self.keys[rows], self.values[rows])


@dataclass(frozen=True, slots=True)
class TrueRows:
    """Rows of true features [T]: queries [T, heads, D], what they leave, residual [T, H]."""

    query: Tensor
    kept: Kept
    residual: Tensor
    positions: Tensor


class ProbeDraft:
    """Raw weights of a one-layer draft, and its scores under a wiring."""

    def __init__(
        self, spec: DraftSpec, tensors: Mapping[str, Tensor], shared_embedding: Tensor
    ) -> None:
        """``shared_embedding`` [V, H] is the target's.

        Raises:
            CheckpointError: a draft of several layers, or with latent attention.
        """
        if spec.n_layers != 1 or f"{_AT}.self_attn.q_proj.weight" not in tensors:
            raise CheckpointError(
                "the probe reads drafts of one layer with plain attention.",
                todo="Score this draft with the engine: specbench sweep.",
            )
        self.spec, self._t, self._shared = spec, dict(tensors), shared_embedding
        self._own = tensors.get("embed_tokens.weight")
        ids = torch.arange(spec.draft_vocab, device=shared_embedding.device)
        self.offsets = tensors["d2t"].to(ids) if "d2t" in tensors else torch.zeros_like(ids)
        self._ids = ids
        self._parts: dict[tuple[int, Tap, int], Tensor] = {}
        self._parts_of: Capture | None = None

    @classmethod
    def load(cls, pair: ModelPair, draft_dir: Path | str, **flags: Any) -> ProbeDraft:
        """Read the draft again, apart from the engine's copy; ``flags`` are ``read_draft``'s."""
        spec, folder = read_draft(draft_dir, pair.target_spec, **flags)
        tensors = by_canonical(load_tensors(folder, pair.dtype, pair.device))
        if spec.d2t_policy == DIRECT:
            tensors["d2t"] = offsets_of(tensors["d2t"])
        return cls(spec, tensors, pair.target.embedding)

    @property
    def claimed(self) -> Wiring:
        """The wiring that the files claim; an own embedding counts only where it differs."""
        own = self._own
        same = own is None or (own.shape == self._shared.shape and torch.equal(own, self._shared))
        return Wiring.claimed(self.spec, own_embedding=not same)

    @property
    def has_own_embedding(self) -> bool:
        """True when the file ships an embedding, equal to the target's or not."""
        return self._own is not None

    def target_ids(self, *, direct: bool = False) -> Tensor:
        """Target id of every draft id [Vd]; ``direct`` reads d2t as target ids (F11)."""
        return self.offsets if direct else self._ids + self.offsets

    @torch.inference_mode()
    def score(self, capture: Capture, wiring: Wiring, steps: int) -> Scores:
        """Rank of the true token at every position and step, with true tokens fed in.

        A chain of the draft's own tokens equals this as long as all before were right, so
        survival follows from it exactly (``Scores.survival``).

        Args:
            capture: the target on its own greedy text, at least ``steps`` tokens past the cut.
            wiring: how to join the two.
            steps: K.

        Raises:
            ConfigError: a layer or tap of ``wiring`` was not captured.
        """
        chain, true = chain_rows(capture, steps), self.true_rows(capture, wiring)
        parts = ScoreParts(capture, chain, self.target_ids(direct=wiring.direct_map))
        own: list[Kept] = []
        rows, position = chain.rows, true.positions[chain.rows]
        query, residual = true.query[rows], true.residual[rows]
        for step in range(steps):
            mixed = attend(query, true.kept, own, capture, chain)
            state, logits = self.finish(residual, mixed, wiring)
            parts.add(step, logits)
            if step + 1 == steps:
                break
            token = capture.tokens[rows + 2 + step]
            at = position + (step + 1 + wiring.decode_shift)
            query, new, residual = self.attention_in(token, state, at, wiring)
            own.append(new)
        return parts.scores()

    def true_rows(self, capture: Capture, wiring: Wiring) -> TrueRows:
        """The rows of true features of all texts, as after an extend."""
        tokens, states = capture.tokens, self._states(capture, wiring)
        follow = tokens if wiring.pairing < 0 else tokens.roll(-1)
        positions = capture.positions()
        return TrueRows(*self.attention_in(follow, states, positions, wiring), positions)

    def _states(self, capture: Capture, wiring: Wiring) -> Tensor:
        """h [T, H] of every row of true features."""
        if not wiring.use_fc:
            states = capture.normed
        elif wiring.norm_before_fc or wiring.fc_norm:
            states = self._normed_fc(capture, wiring)
        else:
            states = self._sum(capture, wiring.tap, wiring.slots)
            if wiring.verify_slots is not None:
                late = self._sum(capture, wiring.tap, wiring.verify_slots)
                states = torch.where(capture.in_reply()[:, None], late, states)
        if wiring.pairing > 0:  # the first row of a text has no row before it
            first = (capture.positions() == 0)[:, None]
            states = torch.where(first, states, states.roll(1, 0))
        return states

    def _sum(self, capture: Capture, tap: Tap, slots: tuple[int, ...]) -> Tensor:
        parts = torch.stack([self._part(capture, j, tap, k) for j, k in enumerate(slots)])
        return self._biased("fc", parts.sum(0))

    def _normed_fc(self, capture: Capture, wiring: Wiring) -> Tensor:
        chunks = [_feature(capture, wiring.tap, k) for k in wiring.slots]
        x, eps = torch.cat(chunks, -1), self.spec.shape.eps
        if wiring.norm_before_fc:
            x = rms_norm(x, self._weight("input_norm.weight", x.shape[-1]), eps)
        if wiring.fc_norm:
            width = self.spec.target_hidden
            pieces = [
                rms_norm(part, self._weight(f"fc_norm.{j}.weight", width), eps)
                for j, part in enumerate(torch.split(x, width, -1))
            ]
            x = torch.cat(pieces, -1)
        return self._linear("fc", x)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return self._biased(name, x @ self._t[f"{name}.weight"].T)

    def _biased(self, name: str, x: Tensor) -> Tensor:
        return x + self._t[f"{name}.bias"] if f"{name}.bias" in self._t else x

    def _heads(self, name: str, x: Tensor) -> Tensor:
        """Heads [R, heads, D] of a projection, normed where the draft has norms (Qwen3)."""
        at, shape = f"{_AT}.self_attn.{name}", self.spec.shape
        heads = self._linear(f"{at}_proj", x).view(len(x), -1, shape.head_dim)
        norm = self._t.get(f"{at}_norm.weight")
        return heads if norm is None else rms_norm(heads, norm, shape.eps)

    def _weight(self, name: str, width: int) -> Tensor:
        """A norm's weight; ones where the file has none, as an engine would default it."""
        found = self._t.get(name)
        return self._shared.new_ones(width) if found is None else found

    def _part(self, capture: Capture, slot: int, tap: Tap, k: int) -> Tensor:
        """What slot ``slot`` of fc makes of one captured stream [T, H]; kept, since fc is linear.

        Any order and choice of layers is then a sum of parts (engine-spec 10.4).
        """
        if capture is not self._parts_of:
            self._parts_of = capture
            self._parts.clear()
        key = (slot, tap, k)
        if key not in self._parts:
            width = self.spec.target_hidden
            columns = self._t["fc.weight"][:, slot * width : (slot + 1) * width]
            self._parts[key] = _feature(capture, tap, k) @ columns.T
        return self._parts[key]

    def attention_in(
        self, tokens: Tensor, states: Tensor, positions: Tensor, wiring: Wiring
    ) -> tuple[Tensor, Kept, Tensor]:
        """Rotated queries [R, heads, D], keys and values, and the residual [R, H]."""
        t, shape = self._t, self.spec.shape
        table = self._own if wiring.own_embedding and self._own is not None else self._shared
        token = rms_norm(table[tokens], t[f"{_AT}.input_layernorm.weight"], shape.eps)
        normed = states
        if wiring.hidden_norm:
            normed = rms_norm(states, t[f"{_AT}.hidden_norm.weight"], shape.eps)
        x = torch.cat([token, normed] if wiring.token_first else [normed, token], -1)
        q, k, v = (self._heads(name, x) for name in "qkv")
        turn = _turn(positions, shape.head_dim, wiring, x.dtype)
        residual = normed if wiring.norm_before_residual else states
        q, k = (_rotate(x, turn, adjacent=wiring.adjacent) for x in (q, k))
        return q, Kept(k, v), residual

    def finish(self, residual: Tensor, mixed: Tensor, wiring: Wiring) -> tuple[Tensor, Tensor]:
        """Recurrent state [R, H] and logits [R, Vd]."""
        t, eps = self._t, self.spec.shape.eps
        r = residual + self._linear(f"{_AT}.self_attn.o_proj", mixed)
        x = rms_norm(r, t[f"{_AT}.post_attention_layernorm.weight"], eps)
        gate, up = (x @ t[f"{_AT}.mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        out = r + (F.silu(gate) * up) @ t[f"{_AT}.mlp.down_proj.weight"].T
        normed = rms_norm(out, t["norm.weight"], eps)
        head = t.get("lm_head.weight", self._own if self._own is not None else self._shared)
        return (normed if wiring.norm_output else out), normed @ head.T


def _feature(capture: Capture, tap: Tap, k: int) -> Tensor:
    found = capture.features.get((tap, k))
    if found is None:
        raise ConfigError(
            f"{tap} of physical layer {k} was not captured.",
            expected=f"One of {sorted({i for _, i in capture.features})}.",
        )
    return found


def _turn(positions: Tensor, dim: int, wiring: Wiring, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    rope = RopeSpec(theta=wiring.theta, max_position=0, scaling=wiring.scaling)
    factor, turns = factors(rope)[0], frequencies(rope, dim).to(positions.device)
    angles = positions.double()[:, None] / wiring.scale * turns
    return (factor * angles.cos()).to(dtype)[:, None], (factor * angles.sin()).to(dtype)[:, None]


def _rotate(x: Tensor, turn: tuple[Tensor, Tensor], *, adjacent: bool) -> Tensor:
    """Queries and keys come in one order of dimensions, whichever pairs are turned."""
    cos, sin = turn
    left, right = (x[..., ::2], x[..., 1::2]) if adjacent else x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def attend(query: Tensor, kept: Kept, own: list[Kept], capture: Capture, chain: Chain) -> Tensor:
    """Mix of values [R, heads·D]: all true rows up to each row's position, and its own chain."""
    mixed = torch.empty_like(query)
    for (first, end), (low, high) in zip(capture.spans(), chain.pieces, strict=True):
        rows = torch.arange(low, high, device=query.device)
        hidden = torch.arange(first, end, device=query.device) > chain.rows[rows][:, None]
        text = Kept(kept.keys[first:end], kept.values[first:end])
        for at in range(low, high, MOST_QUERIES):
            to = min(at + MOST_QUERIES, high)
            near = [Kept(o.keys[at:to], o.values[at:to]) for o in own]
            mixed[at:to] = _attend_text(query[at:to], text, near, hidden[at - low : to - low])
    return mixed.flatten(1)


def _attend_text(query: Tensor, text: Kept, own: list[Kept], hidden: Tensor) -> Tensor:
    """Queries [R, heads, D] over the rows of one text [S, Hkv, D], ``hidden`` [R, S] left out, and
    over one key each of ``own`` per earlier step."""
    rows, _, dim = query.shape
    kv = text.keys.shape[1]
    grouped = query.view(rows, kv, -1, dim) * dim**-0.5
    far = torch.einsum("rkgd,skd->rkgs", grouped, text.keys)
    far = far.masked_fill(hidden[:, None, None], float("-inf"))
    near = [torch.einsum("rkgd,rkd->rkg", grouped, o.keys)[..., None] for o in own]
    weights = torch.softmax(torch.cat([far, *near], -1), -1)
    reach = text.keys.shape[0]
    mixed = torch.einsum("rkgs,skd->rkgd", weights[..., :reach], text.values)
    for j, o in enumerate(own):
        mixed += weights[..., reach + j, None] * o.values[:, :, None]
    return mixed.reshape(query.shape)

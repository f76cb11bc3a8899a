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

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from specbench.checkpoint import read_draft
from specbench.checkpoint.draft_names import by_canonical
from specbench.engine.models.weights import load_tensors
from specbench.engine.pair import ModelPair
from specbench.engine.probe_capture import Capture, rms_norm
from specbench.engine.probe_scores import Chain, ScoreParts, Scores, chain_rows
from specbench.engine.wiring import Tap, Wiring
from specbench.errors import CheckpointError, ConfigError
from specbench.modelspec import DraftSpec

_AT = "midlayer"
MOST_QUERIES = 512


@dataclass(frozen=True, slots=True)
class _Kept:
    """Keys and values [rows, Hkv, D]."""

    keys: Tensor
    values: Tensor


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
        self._parts: dict[tuple[int, int, Tap, int], Tensor] = {}

    @classmethod
    def load(
        cls,
        pair: ModelPair,
        draft_dir: Path | str,
        *,
        capture_ids: tuple[int, ...] | None = None,
        capture_default: bool = False,
    ) -> ProbeDraft:
        """Read the draft again, apart from the engine's copy; arguments as ``read_draft``."""
        spec, folder = read_draft(
            draft_dir, pair.target_spec, capture_ids=capture_ids, capture_default=capture_default
        )
        tensors = by_canonical(load_tensors(folder, pair.dtype, pair.device))
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
        chain = chain_rows(capture, steps)
        tokens, states = capture.tokens, self._states(capture, wiring)
        follow = tokens if wiring.pairing < 0 else tokens.roll(-1)
        base_at = capture.positions()
        query, kept, residual = self._attention_in(follow, states, base_at, wiring)
        parts = ScoreParts(capture, chain, self.target_ids(direct=wiring.direct_map))
        own: list[_Kept] = []
        rows, position = chain.rows, base_at[chain.rows]
        query, residual = query[rows], residual[rows]
        for step in range(steps):
            mixed = _attend(query, kept, own, capture, chain)
            state, logits = self._finish(residual, mixed, wiring)
            parts.add(step, logits)
            if step + 1 == steps:
                break
            token = tokens[rows + 2 + step]
            at = position + (step + 1 + wiring.decode_shift)
            query, new, residual = self._attention_in(token, state, at, wiring)
            own.append(new)
        return parts.scores()

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
        parts = [self._part(capture, j, tap, k) for j, k in enumerate(slots)]
        return torch.stack(parts).sum(0)

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
        return x @ self._t["fc.weight"].T

    def _weight(self, name: str, width: int) -> Tensor:
        """A norm's weight; ones where the file has none, as an engine would default it."""
        found = self._t.get(name)
        return self._shared.new_ones(width) if found is None else found

    def _part(self, capture: Capture, slot: int, tap: Tap, k: int) -> Tensor:
        """What slot ``slot`` of fc makes of one captured stream [T, H]; kept, since fc is linear.

        Any order and choice of layers is then a sum of parts (engine-spec 10.4).
        """
        key = (id(capture), slot, tap, k)
        if key not in self._parts:
            if any(other[0] != id(capture) for other in self._parts):
                self._parts.clear()
            width = self.spec.target_hidden
            columns = self._t["fc.weight"][:, slot * width : (slot + 1) * width]
            self._parts[key] = _feature(capture, tap, k) @ columns.T
        return self._parts[key]

    def _attention_in(
        self, tokens: Tensor, states: Tensor, positions: Tensor, wiring: Wiring
    ) -> tuple[Tensor, _Kept, Tensor]:
        """Rotated queries [R, heads, D], keys and values, and the residual [R, H]."""
        t, shape = self._t, self.spec.shape
        table = self._own if wiring.own_embedding and self._own is not None else self._shared
        token = rms_norm(table[tokens], t[f"{_AT}.input_layernorm.weight"], shape.eps)
        normed = states
        if wiring.hidden_norm:
            normed = rms_norm(states, t[f"{_AT}.hidden_norm.weight"], shape.eps)
        x = torch.cat([token, normed] if wiring.token_first else [normed, token], -1)
        q, k, v = (
            (x @ t[f"{_AT}.self_attn.{n}_proj.weight"].T).view(len(x), -1, shape.head_dim)
            for n in "qkv"
        )
        turn = _turn(positions, shape.head_dim, wiring, x.dtype)
        residual = normed if wiring.norm_before_residual else states
        return _rotate(q, turn), _Kept(_rotate(k, turn), v), residual

    def _finish(self, residual: Tensor, mixed: Tensor, wiring: Wiring) -> tuple[Tensor, Tensor]:
        """Recurrent state [R, H] and logits [R, Vd]."""
        t, eps = self._t, self.spec.shape.eps
        r = residual + mixed @ t[f"{_AT}.self_attn.o_proj.weight"].T
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
    even = torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device)
    angles = positions.double()[:, None] / wiring.scale * wiring.theta ** -(even / dim)
    return angles.cos().to(dtype)[:, None], angles.sin().to(dtype)[:, None]


def _rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def _attend(query: Tensor, kept: _Kept, own: list[_Kept], capture: Capture, chain: Chain) -> Tensor:
    """Mix of values [R, heads·D]: all true rows up to each row's position, and its own chain."""
    mixed = torch.empty_like(query)
    for (first, end), (low, high) in zip(capture.spans(), chain.pieces, strict=True):
        rows = torch.arange(low, high, device=query.device)
        hidden = torch.arange(first, end, device=query.device) > chain.rows[rows][:, None]
        text = _Kept(kept.keys[first:end], kept.values[first:end])
        for at in range(low, high, MOST_QUERIES):
            to = min(at + MOST_QUERIES, high)
            near = [_Kept(o.keys[at:to], o.values[at:to]) for o in own]
            mixed[at:to] = _attend_text(query[at:to], text, near, hidden[at - low : to - low])
    return mixed.flatten(1)


def _attend_text(query: Tensor, text: _Kept, own: list[_Kept], hidden: Tensor) -> Tensor:
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

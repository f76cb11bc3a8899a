"""Mixture of experts: a router that chooses, and experts that run (engine-spec 12.1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from specbench.engine.models.layers import WIDE
from specbench.engine.models.parts import SwiGlu
from specbench.modelspec import ExpertSpec

TINY = 1e-20  # keeps the sum of chosen scores from being 0, as in DeepSeek's code


class Router(nn.Module):
    """Scores of all experts, the choice, and the weights of the chosen."""

    def __init__(self, spec: ExpertSpec, tensors: Mapping[str, Tensor], at: str) -> None:
        super().__init__()
        self._spec = spec
        name = "router" if spec.clamp else "gate"
        self.weight = tensors[f"{at}.{name}.weight"]
        self.bias = tensors.get(f"{at}.{name}.bias")
        self._correction = tensors.get(f"{at}.gate.e_score_correction_bias")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Chosen experts [R, k] and their weights [R, k] for rows ``x`` [R, H]."""
        spec = self._spec
        logits = F.linear(x.to(self.weight.dtype), self.weight, self.bias)
        logits = logits if logits.dtype in WIDE else logits.float()
        if spec.score == "softmax_chosen":
            best, chosen = logits.topk(spec.active, -1)
            return chosen, torch.softmax(best, -1)
        scores = logits.sigmoid() if spec.score == "sigmoid" else torch.softmax(logits, -1)
        for_choice = scores if self._correction is None else scores + self._correction.to(scores)
        chosen = self._in_groups(for_choice).topk(spec.active, -1).indices
        weights = scores.gather(1, chosen)
        if spec.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + TINY)
        return chosen, weights * spec.scaling

    def _in_groups(self, scores: Tensor) -> Tensor:
        """Scores with those of experts outside the kept groups closed."""
        spec = self._spec
        if spec.groups == 1:
            return scores
        grouped: Tensor = torch.unflatten(scores, -1, (spec.groups, -1))
        by = grouped.topk(2, -1).values.sum(-1) if spec.group_score == "top2" else grouped.amax(-1)
        kept = by.topk(spec.kept_groups, -1).indices
        closed = torch.ones_like(by, dtype=torch.bool).scatter_(1, kept, False)
        return grouped.masked_fill(closed[..., None], float("-inf")).flatten(1)


class Experts(nn.Module):
    """The routed experts: gate and up [E, I, H], down [E, H, I], with biases for gpt-oss."""

    def __init__(self, spec: ExpertSpec, tensors: Mapping[str, Tensor], at: str) -> None:
        super().__init__()
        self._spec = spec
        self.gate, self.up, self.down, self._biases = (_clamped if spec.clamp else _stacked)(
            spec, tensors, at
        )

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Weighted sum over the chosen experts [R, H]."""
        if x.is_cuda:  # shapes must not depend on the choice where a graph may be captured
            run = self.dense if x.dtype in WIDE else self.grouped
            return run(x, chosen, weights)
        table, total = self._table(x, chosen, weights), torch.zeros_like(x)
        for index in sorted(set(chosen.flatten().tolist())):
            rows = table[:, index].nonzero().flatten()
            total.index_add_(0, rows, table[rows, index, None] * self._one(x[rows], index))
        return total

    def dense(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Every expert on every row, those not chosen with weight 0."""
        table, total = self._table(x, chosen, weights), torch.zeros_like(x)
        for index in range(self._spec.count):
            total += table[:, index, None] * self._one(x, index)
        return total

    def _table(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Weights of all experts [R, E], 0 where not chosen."""
        table = weights.new_zeros(x.shape[0], self._spec.count)
        return table.scatter_(1, chosen, weights).to(x.dtype)

    def _one(self, x: Tensor, index: int) -> Tensor:
        gate, up, down = self._biases or (None, None, None)
        active = self._activate(
            F.linear(x, self.gate[index], None if gate is None else gate[index]),
            F.linear(x, self.up[index], None if up is None else up[index]),
        )
        return F.linear(active, self.down[index], None if down is None else down[index])

    def grouped(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """All experts in three calls on sorted rows; shapes depend on R and k alone."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        source = order // chosen.shape[1]
        expert = flat[order]
        counts = torch.zeros(self._spec.count, dtype=torch.int32, device=x.device)
        ends = counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
        ends = ends.cumsum(0, dtype=torch.int32)

        def product(rows: Tensor, matrices: Tensor, bias: Tensor | None) -> Tensor:
            out = F.grouped_mm(rows, matrices.transpose(1, 2), offs=ends)
            return out if bias is None else out + bias[expert]

        gate, up, down = self._biases or (None, None, None)
        rows = x[source]
        active = self._activate(product(rows, self.gate, gate), product(rows, self.up, up))
        out = product(active, self.down, down) * weights.flatten()[order, None].to(x.dtype)
        return torch.zeros_like(x).index_add_(0, source, out)

    def _activate(self, gate: Tensor, up: Tensor) -> Tensor:
        if self._spec.clamp is None:
            return F.silu(gate) * up
        alpha, limit = self._spec.clamp
        gate = gate.clamp(max=limit)
        return (up.clamp(-limit, limit) + 1) * gate * torch.sigmoid(alpha * gate)


class MoeFeedForward(nn.Module):
    """Routed experts, and the shared one where there is one."""

    def __init__(self, spec: ExpertSpec, tensors: Mapping[str, Tensor], at: str) -> None:
        super().__init__()
        self.router, self.experts = Router(spec, tensors, at), Experts(spec, tensors, at)
        shared = spec.shared_inner is not None
        self.shared = SwiGlu(tensors, f"{at}.shared_experts") if shared else None

    def forward(self, x: Tensor) -> Tensor:
        """[R, H] to [R, H]."""
        out: Tensor = self.experts(x, *self.router(x))
        return out if self.shared is None else out + self.shared(x)


Weights = tuple[Tensor, Tensor, Tensor]
Stacked = tuple[nn.Parameter, nn.Parameter, nn.Parameter, Weights | None]


def _fixed(value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.contiguous(), requires_grad=False)


def _stacked(spec: ExpertSpec, tensors: Mapping[str, Tensor], at: str) -> Stacked:
    """One matrix per expert and projection in the file, [out, in]."""

    def stack(name: str) -> nn.Parameter:
        named = (tensors[f"{at}.experts.{j}.{name}_proj.weight"] for j in range(spec.count))
        return _fixed(torch.stack(list(named)))

    return stack("gate"), stack("up"), stack("down"), None


def _clamped(spec: ExpertSpec, tensors: Mapping[str, Tensor], at: str) -> Stacked:
    """gpt-oss: all experts in one tensor, [in, out], gate and up in turns."""
    both = tensors[f"{at}.experts.gate_up_proj"].transpose(1, 2)
    bias = tensors[f"{at}.experts.gate_up_proj_bias"]
    down = tensors[f"{at}.experts.down_proj"].transpose(1, 2)
    biases = (bias[:, ::2], bias[:, 1::2], tensors[f"{at}.experts.down_proj_bias"])
    return _fixed(both[:, ::2]), _fixed(both[:, 1::2]), _fixed(down), biases

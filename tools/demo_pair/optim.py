"""Muon with the Newton-Schulz iteration in fp32 and stacked by shape, beside AdamW.

``torch.optim.Muon`` iterates in bfloat16, which a processor without bf16
instructions runs twenty times slower than this.
"""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import Tensor, nn


def orthogonalise(stack: Tensor, steps: int = 4) -> Tensor:
    """Approximate U V^T of each matrix by the quintic iteration of Keller Jordan's Muon."""
    x = stack / (stack.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    flat: Tensor = x.mT if tall else x
    return flat


class Muon:
    """Momentum, orthogonalised; matrices of one shape are iterated together."""

    def __init__(
        self, params: list[nn.Parameter], momentum: float = 0.95, decay: float = 0.05
    ) -> None:
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for param in params:
            self.groups[tuple(param.shape)].append(param)
        self.state = {
            shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()
        }
        self.momentum, self.decay = momentum, decay

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate ``rate``."""
        for shape, group in self.groups.items():
            grads = torch.stack(
                [p.grad if p.grad is not None else torch.zeros_like(p) for p in group]
            )
            buffer = self.state[shape].lerp_(grads, 1 - self.momentum)
            update = orthogonalise(grads.lerp(buffer, self.momentum))
            scale = rate * math.sqrt(max(1.0, shape[0] / shape[1]))
            for param, change in zip(group, update, strict=True):
                param.mul_(1 - rate * self.decay).add_(change, alpha=-scale)


class Optimiser:
    """Muon on the layers' matrices, AdamW on embeddings, heads and norms; cosine to 5 %."""

    def __init__(
        self, module: nn.Module, steps: int, muon_rate: float, adam_rate: float, warmup: int = 20
    ) -> None:
        named = list(module.named_parameters())
        matrices = [p for n, p in named if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
        chosen = {id(p) for p in matrices}
        self.module, self.steps, self.warmup = module, steps, min(warmup, max(1, steps // 10))
        self.muon_rate, self.adam_rate = muon_rate, adam_rate
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(
            [p for _, p in named if id(p) not in chosen],
            lr=adam_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
        )

    def factor(self, step: int) -> float:
        """Learning-rate factor at ``step``."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        along = (step - self.warmup) / max(1, self.steps - self.warmup)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, along)))

    def step(self, step: int) -> None:
        """Clip to norm 1, update, clear the gradients."""
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        factor = self.factor(step)
        self.muon.step(self.muon_rate * factor)
        for group in self.adam.param_groups:
            group["lr"] = self.adam_rate * factor
        self.adam.step()
        self.module.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """State for a checkpoint, flat."""
        flat = {f"muon/{'x'.join(map(str, shape))}": v for shape, v in self.muon.state.items()}
        for index, param in enumerate(self.adam.param_groups[0]["params"]):
            for name, value in self.adam.state.get(param, {}).items():
                flat[f"adam/{index}/{name}"] = value
        return flat

    def restore(self, flat: dict[str, Tensor]) -> None:
        """Load what ``state`` gave."""
        for name, value in flat.items():
            kind, key, *rest = name.split("/")
            if kind == "muon":
                self.muon.state[tuple(map(int, key.split("x")))] = value
            else:
                param = self.adam.param_groups[0]["params"][int(key)]
                self.adam.state[param][rest[0]] = value

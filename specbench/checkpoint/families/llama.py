"""Llama 2 and 3.x: the layer that the fast forward is made for."""

from __future__ import annotations

from specbench.checkpoint.families.base import Family, Parts
from specbench.checkpoint.keys import Keys
from specbench.checkpoint.layer_rules import layer_shape
from specbench.checkpoint.rope import read_rope


def _read(keys: Keys) -> Parts:
    shape = layer_shape(keys)
    return Parts(shape=shape, rope=read_rope(keys, shape.head_dim))


LLAMA = Family(name="llama", architectures=("LlamaForCausalLM",), read=_read)

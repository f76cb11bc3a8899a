"""Model families that a target may belong to: one file each, and the table of them.

A family is data: how its config is read into the parts of ``modelspec``. From those parts follow
the expected tensors (``target_tensors``) and the layers that run (``engine.models.decoder``). See
docs/families.md.
"""

from specbench.checkpoint.families.base import Family, Parts
from specbench.checkpoint.families.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from specbench.checkpoint.families.glm import GLM_DSA
from specbench.checkpoint.families.gpt_oss import GPT_OSS
from specbench.checkpoint.families.kimi import KIMI_K25
from specbench.checkpoint.families.llama import LLAMA
from specbench.checkpoint.families.qwen import QWEN2, QWEN3, QWEN3_MOE

FAMILIES: tuple[Family, ...] = (
    LLAMA,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    KIMI_K25,
    GLM_DSA,
    GPT_OSS,
)

__all__ = ["FAMILIES", "Family", "Parts"]

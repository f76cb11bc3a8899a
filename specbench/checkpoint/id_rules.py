"""How a layer id X in a config becomes a physical index, as data (engine-spec 3.2 and 3.3).

Physical index k: 0 is the output of the embedding, k the residual stream that enters layer k, n
the output of the last of n layers before the final norm. One ``IdRule`` per code base, span of
versions and group of target classes; ``conventions`` looks them up and turns them round.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

Version = tuple[int, ...]
Defaults = Callable[[int], tuple[int, ...]]


class Shift(enum.Enum):
    """From a written X to physical k."""

    OUTPUT = "X + 1 (the output of layer X)"
    INPUT = "X (the input of layer X)"
    FIRST_IS_ONE = "X + 1 if the first id is 1, else X"
    LAST_IS_N = "X if the largest id is n, else X + 1"
    FIXED = "no ids: always the default"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRule:
    """What written ids mean to one code base.

    ``since`` is the first and ``until`` the last version for which the rule was read, empty for no
    bound; ``classes`` are the target classes it holds for, empty for all others. ``default`` gives
    physical indices when no ids are written. ``first`` and ``below_last`` bound what can be
    captured: physical ``first`` .. n, or n - 1 when ``below_last``. ``serves`` is False for code
    that only writes training data.
    """

    code: str
    shift: Shift
    default: Defaults
    keys: tuple[str, ...]
    source: str
    since: Version = ()
    until: Version = ()
    classes: frozenset[str] = frozenset()
    first: int = 0
    below_last: bool = False
    serves: bool = False


def usual(n: int) -> tuple[int, ...]:
    """The default of most code: before layers 2, n//2 and n-3."""
    return 2, n // 2, n - 3


def one_later(n: int) -> tuple[int, ...]:
    """The same numbers read as layers whose output is captured."""
    return 3, n // 2 + 1, n - 2


def none(n: int) -> tuple[int, ...]:
    """No default: the ids must be written."""
    return ()


# Targets whose SGLang class is DeepseekV2ForCausalLM or derives from it, and glm4_moe_lite.
DEEPSEEK = frozenset(
    ("deepseekv2", "deepseekv3", "deepseekv32", "kimik2", "kimik25", "glmmoedsa", "glm4moelite")
)
GPT_OSS = frozenset(("gptoss",))
MINIMAX = frozenset(("minimaxm3vl",))
NESTED = "eagle_config.eagle_aux_hidden_state_layer_ids"
TOP = "eagle_aux_hidden_state_layer_ids"
SETTER = "set_eagle3_layers_to_capture in the target's model file"

# Order matters: the first rule that fits is used, so special classes stand before the general one.
RULES: tuple[IdRule, ...] = (
    IdRule(
        code="sglang", since=(0, 5, 8), until=(0, 5, 12), classes=DEEPSEEK, serves=True,
        shift=Shift.OUTPUT, default=usual, keys=(NESTED,), first=1, below_last=True,
        source=f"{SETTER} (deepseek_v2.py)",
    ),
    IdRule(
        code="sglang", since=(0, 5, 14), classes=DEEPSEEK, serves=True,
        shift=Shift.FIRST_IS_ONE, default=usual, keys=(NESTED,), first=1, below_last=True,
        source=f"{SETTER} (deepseek_v2.py, sglang #25454)",
    ),
    IdRule(
        code="sglang", since=(0, 5, 23), classes=GPT_OSS, serves=True,
        shift=Shift.LAST_IS_N, default=usual, keys=(NESTED,), first=1,
        source=f"{SETTER} (gpt_oss.py, sglang #32334)",
    ),
    IdRule(
        code="sglang", since=(0, 5, 23), classes=MINIMAX, serves=True,
        shift=Shift.OUTPUT, default=one_later, keys=(NESTED,), first=1, below_last=True,
        source=f"{SETTER} (minimax_m3_vl.py: the default list gets the + 1 too)",
    ),
    IdRule(
        code="sglang", since=(0, 5, 8), serves=True,
        shift=Shift.OUTPUT, default=usual, keys=(NESTED,), first=1, below_last=True,
        source=SETTER,
    ),
    IdRule(
        code="vllm", until=(0, 16), serves=True,
        shift=Shift.INPUT, default=usual, keys=(TOP, NESTED), below_last=True,
        source="models/interfaces.py: captured before a layer only",
    ),
    IdRule(
        code="vllm", since=(0, 32), serves=True,
        shift=Shift.INPUT, default=usual, keys=(TOP,),
        source="models/interfaces.py, EagleModelMixin; V1 and V2 runner read the top-level key",
    ),
    IdRule(
        code="vllm-dflash", since=(0, 32), serves=True,
        shift=Shift.OUTPUT, default=none, keys=("dflash_config", "dspark_config"),
        source="v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
    ),
    IdRule(
        code="specforge", shift=Shift.OUTPUT, default=usual, keys=(NESTED,), first=1,
        source="scripts/prepare_hidden_states.py and the target model files",
    ),
    IdRule(
        code="nvidia", shift=Shift.OUTPUT, default=usual, keys=(NESTED,), first=1,
        source="modelopt torch/speculative: forward hooks on layers, default [1, n//2-1, n-4]",
    ),
    IdRule(
        code="safeailab", shift=Shift.FIXED, default=usual, keys=(),
        source="eagle/model/modeling_*_kv.py",
    ),
    IdRule(
        code="speculators", until=(0, 3), shift=Shift.OUTPUT, default=one_later, keys=(TOP,),
        first=1, source="data_generation/: an in-process vLLM hook after layer X",
    ),
    IdRule(
        code="speculators", since=(0, 5), shift=Shift.INPUT, default=usual, keys=(TOP,),
        source="launch_vllm.py: served vLLM, extract_hidden_states",
    ),
    IdRule(
        code="hf", shift=Shift.INPUT, default=none, keys=("index of output_hidden_states",),
        below_last=True, source="transformers: entry n is after the final norm, so X < n",
    ),
)  # fmt: skip

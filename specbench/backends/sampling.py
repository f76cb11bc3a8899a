"""Sampling parameters as fields of a request body."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from specbench.backends.claims import LLAMACPP, SGLANG, VLLM
from specbench.request import SamplingParams

# Samplers that a server would otherwise take from the model's generation_config.json (vLLM,
# SGLang) or from its own defaults (llama.cpp: top_k 40, top_p 0.95, min_p 0.05).
_NEUTRAL: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        VLLM: {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
        SGLANG: {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
        LLAMACPP: {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0},
    }
)


def neutral_fields(server: str) -> dict[str, Any]:
    """Body fields that switch off what ``server`` would do unasked to the target's distribution.

    Empty for servers that are not known to take them. What a request asks goes over these.

    >>> neutral_fields("llama.cpp")["top_k"], neutral_fields("")
    (0, {})
    """
    return dict(_NEUTRAL.get(server, {}))


def sampling_fields(
    sampling: SamplingParams, *, max_tokens: str = "max_tokens", seed: str = "seed"
) -> dict[str, Any]:
    """``sampling`` as body fields; what is not used is left out.

    A strict server refuses fields that it does not know, which is better than to ignore them, so
    extensions (top_k, min_p, stop_token_ids, ignore_eos) are sent only where they matter.

    Args:
        sampling: what was asked.
        max_tokens: the server's name for the longest output (SGLang: ``max_new_tokens``).
        seed: the server's name for the seed (SGLang: ``sampling_seed``).

    >>> sampling_fields(SamplingParams(max_tokens=8, stop=("x",)))
    {'max_tokens': 8, 'temperature': 0.0, 'stop': ['x']}
    """
    fields: dict[str, Any] = {max_tokens: sampling.max_tokens, "temperature": sampling.temperature}
    if not sampling.greedy:
        fields[seed] = sampling.seed
    if sampling.top_p != 1.0:
        fields["top_p"] = sampling.top_p
    if sampling.top_k:
        fields["top_k"] = sampling.top_k
    if sampling.min_p:
        fields["min_p"] = sampling.min_p
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.stop_token_ids:
        fields["stop_token_ids"] = list(sampling.stop_token_ids)
    if sampling.ignore_eos:
        fields["ignore_eos"] = True
    return fields

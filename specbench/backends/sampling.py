"""Sampling parameters as fields of a request body."""

from __future__ import annotations

from typing import Any

from specbench.request import SamplingParams


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

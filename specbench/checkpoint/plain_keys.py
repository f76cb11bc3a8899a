"""Config keys that change nothing in a forward pass of ours, and the kind of value each may have.

A harmless key with a senseless value is still an error: the file is not what it claims to be.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from specbench.errors import CheckpointError


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= -1


def _ids(value: Any) -> bool:
    return _id(value) or (isinstance(value, list) and all(map(_id, value)))


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _table(value: Any) -> bool:
    return isinstance(value, Mapping)


Kind = Callable[[Any], bool]
# Besides names and token ids: what transformers writes into every config (older versions all of
# generation's settings, too), and remarks of training code. Nothing here changes a forward.
_KINDS: tuple[tuple[str, Kind, tuple[str, ...]], ...] = (
    (
        "a text",
        _text,
        (
            *("model_type", "torch_dtype", "dtype", "transformers_version", "_name_or_path"),
            *("tokenizer_class", "prefix", "problem_type", "_attn_implementation"),
            *("finetuning_task", "name_or_path", "experts_implementation"),
        ),
    ),
    ("a list of texts", _texts, ("architectures",)),
    (
        "a token id",
        _id,
        (
            *("bos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id"),
            *("forced_bos_token_id", "forced_eos_token_id"),
        ),
    ),
    (
        "a token id or a list of them",
        _ids,
        ("eos_token_id", "suppress_tokens", "begin_suppress_tokens"),
    ),
    ("a list", _list, ("bad_words_ids", "exponential_decay_length_penalty")),
    (
        "a number",
        _number,
        (
            *("initializer_range", "attention_dropout", "pretraining_tp"),
            *("chunk_size_feed_forward", "cross_attention_hidden_size", "max_length"),
            *("min_length", "num_beams", "num_beam_groups", "num_return_sequences"),
            *("diversity_penalty", "temperature", "top_k", "top_p", "typical_p"),
            *("repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
            "encoder_no_repeat_ngram_size",
        ),
    ),
    (
        "true or false",
        _flag,
        (
            *("use_cache", "return_dict", "output_hidden_states", "output_attentions"),
            *("is_encoder_decoder", "is_decoder", "add_cross_attention", "tie_encoder_decoder"),
            *("_attn_implementation_autoset", "torchscript", "use_bfloat16", "tf_legacy_loss"),
            *("do_sample", "early_stopping", "output_scores", "return_dict_in_generate"),
            *("remove_invalid_values", "has_no_defaults_at_init"),
        ),
    ),
    (
        "a table",
        _table,
        (
            *("id2label", "label2id", "auto_map", "pruned_heads", "task_specific_params"),
            *("base_model_ep_plan", "base_model_tp_plan", "base_model_pp_plan"),
        ),
    ),
)
HARMLESS = frozenset(name for _, _, names in _KINDS for name in names)


def check_plain(table: Mapping[str, Any], source: str) -> None:
    """Hold the values of harmless keys against their kinds; null is always allowed.

    Raises:
        CheckpointError: names the first key whose value is of another kind.
    """
    for expected, fits, names in _KINDS:
        for name in names:
            value = table.get(name)
            if value is not None and not fits(value):
                raise CheckpointError(
                    f"{source}: {name}={reprlib.repr(value)}.",
                    expected=f"{expected.capitalize()} or null.",
                )

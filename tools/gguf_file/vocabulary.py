"""tokenizer.json and tokenizer_config.json from the vocabulary that a GGUF file carries.

Byte-level BPE only. How text is cut before BPE stands in the file as a name
(``tokenizer.ggml.pre``); a name that is not known here is refused, since a wrong cut gives other
tokens without an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specbench.errors import CheckpointError
from tools.gguf_file.reader import GgufFile

NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


CUTS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {"gpt-2": _gpt2, "smollm": _smollm}


def build_tokenizer(file: GgufFile) -> Tokenizer:
    """The tokenizer, control tokens marked as special.

    Raises:
        CheckpointError: not byte-level BPE, an unknown cut, or lists that do not fit each other.
    """
    tokens, kinds = _tokens(file)
    cut = file.value("tokenizer.ggml.pre", str)
    if file.value("tokenizer.ggml.model", str) != "gpt2" or cut not in CUTS:
        raise CheckpointError(
            f"{file.path}: tokenizer {file.values['tokenizer.ggml.model']!r} with cut {cut!r}.",
            expected=f"gpt2 (byte-level BPE) with one of {', '.join(CUTS)}.",
        )
    merges = [tuple(text.split(" ")) for text in _list(file, "merges", str)]
    try:
        tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    except Exception as error:  # the library raises plain Exception
        raise CheckpointError(f"{file.path}: its merges do not fit: {error}.") from error
    tokenizer.pre_tokenizer = CUTS[cut]()
    tokenizer.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            added = AddedToken(token, normalized=False, special=kind == CONTROL)
            (tokenizer.add_special_tokens if added.special else tokenizer.add_tokens)([added])
    return tokenizer


def tokenizer_config(file: GgufFile, longest: int) -> dict[str, object]:
    """Chat template, special tokens, and that no token is added in front.

    Raises:
        CheckpointError: the file wants a token added in front or behind, which is not built.
    """
    for key in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        if file.values.get(f"tokenizer.ggml.{key}", False):
            raise CheckpointError(f"{file.path}: tokenizer.ggml.{key} is true.", expected="False.")
    tokens, kinds = _tokens(file)
    named: dict[str, object] = {}
    for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = file.values.get(f"tokenizer.ggml.{theirs}_token_id")
        if index is None:
            continue
        if type(index) is not int or not 0 <= index < len(tokens):
            raise CheckpointError(f"{file.path}: {theirs}_token_id is {index!r}.")
        named[f"{ours}_token"] = tokens[index]
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        "add_bos_token": False,
        "additional_special_tokens": [t for t in special if t not in named.values()],
        "clean_up_tokenization_spaces": False,
        "model_max_length": longest,
    }
    if "tokenizer.chat_template" in file.values:
        config["chat_template"] = file.value("tokenizer.chat_template", str)
    return config


def _list(file: GgufFile, name: str, kind: type) -> list[Any]:
    """A list of the vocabulary whose values are all of a kind."""
    found: list[Any] = file.value(f"tokenizer.ggml.{name}", list)
    odd = [value for value in found if type(value) is not kind]
    if odd:
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.{name} holds {odd[0]!r:.80}.",
            expected=f"A list of {kind.__name__}.",
        )
    return found


def _tokens(file: GgufFile) -> tuple[list[str], list[int]]:
    tokens: list[str] = _list(file, "tokens", str)
    kinds: list[int] = _list(file, "token_type", int)
    if len(tokens) != len(kinds) or len(set(tokens)) != len(tokens):
        raise CheckpointError(
            f"{file.path}: {len(tokens)} tokens ({len(set(tokens))} distinct), {len(kinds)} types.",
            expected="A type for each of distinct tokens.",
        )
    return tokens, kinds

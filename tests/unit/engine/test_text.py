"""Text in and out of token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from specbench.engine.text import TextCodec, TextStream
from specbench.errors import CheckpointError, RequestError
from specbench.request import Message, Request
from tests.tiny import shared_pair, write_tokenizer

CODEC = TextCodec(shared_pair().target)


def ids(text: str) -> list[int]:
    return CODEC.tokenizer.encode(text, add_special_tokens=False).ids


def streamed(text: str, sizes: list[int], stops: tuple[str, ...] = ()) -> list[str]:
    stream, tokens, pieces = TextStream(CODEC, stops), ids(text), []
    for size in sizes:
        part, tokens = tokens[:size], tokens[size:]
        for token in [[t] for t in part] if stream.watches else [part]:
            pieces.append(stream.feed(token))
    return [*pieces, stream.end()]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.lists(st.integers(1, 4), min_size=130, max_size=130))
def test_pieces_join_to_the_whole_and_never_split_a_character(text: str, sizes: list[int]) -> None:
    pieces = streamed(text, sizes)
    whole = CODEC.decode(ids(text))
    assert "".join(pieces) == whole
    assert all(piece in whole for piece in pieces)
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_a_character_waits_for_its_last_byte() -> None:
    assert streamed("é!", [1, 1, 1]) == ["", "é", "!", ""]


def test_bytes_that_never_become_a_character_come_at_the_end() -> None:
    stream = TextStream(CODEC, ())
    assert stream.feed(ids("é")[:1]) == ""
    assert stream.end() == "\N{REPLACEMENT CHARACTER}"


class _Bytes(TextCodec):
    """A tokenizer that spells each byte as a token of its own, as Llama 2's does for rare ones."""

    def __init__(self) -> None:
        self._decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._decoder.decode([f"<0x{byte:02X}>" for byte in ids]))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=12), st.lists(st.integers(1, 5), min_size=50, max_size=50))
def test_a_character_of_byte_tokens_is_held_until_its_last(text: str, sizes: list[int]) -> None:
    stream, left, pieces = TextStream(_Bytes(), ()), list(text.encode()), []
    for size in sizes:
        pieces.append(stream.feed(left[:size]))
        left = left[size:]
    assert "".join([*pieces, stream.end()]) == text


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab", max_size=20), st.text(alphabet="ab", min_size=1, max_size=4))
def test_the_text_ends_before_the_first_stop_string(text: str, stop: str) -> None:
    assert "".join(streamed(text, [3] * 10, (stop,))) == text.split(stop)[0]


def test_special_tokens_are_not_text() -> None:
    assert CODEC.decode([*ids("a"), 256, *ids("b")]) == "ab"


def test_messages_go_through_the_template() -> None:
    request = Request(request_id="r", messages=(Message(role="user", content="hi"),))
    assert CODEC.render(request.messages) == "<|user|>hi<|end|><|assistant|>"
    assert len(CODEC.prompt_ids(request)) == 5


def test_raw_text_and_ids_are_taken_as_they_are() -> None:
    assert CODEC.prompt_ids(Request(request_id="r", prompt="hi")) == tuple(ids("hi"))
    assert CODEC.prompt_ids(Request(request_id="r", prompt_ids=(4, 5))) == (4, 5)
    with pytest.raises(RequestError, match="empty"):
        CODEC.prompt_ids(Request(request_id="r", prompt=""))


def folder(tmp_path: Path, template: str | None) -> Path:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    if template is not None:
        settings_path = tmp_path / "tokenizer_config.json"
        settings_path.write_text(
            json.dumps({"chat_template": template, "bos_token": {"content": "^"}})
        )
    return tmp_path


def test_a_template_in_the_tokenizer_config_is_used(tmp_path: Path) -> None:
    codec = TextCodec(folder(tmp_path, "{{ bos_token }}{{ messages[0].content }}"))
    assert codec.render([Message(role="user", content="x")]) == "^x"


def test_messages_without_a_template_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no chat template"):
        TextCodec(folder(tmp_path, None)).render([Message(role="user", content="x")])


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('only user turns') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ 1 / 0 }}",
        "{{ 10.0 ** 400 }}",
        "{{ range(10 ** 9) | list }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_cannot_do_what_it_likes(tmp_path: Path, template: str) -> None:
    with pytest.raises(RequestError, match="refuses"):
        TextCodec(folder(tmp_path, template)).render([Message(role="user", content="x")])


def test_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        TextCodec(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        TextCodec(tmp_path)
    with pytest.raises(CheckpointError, match="does not compile"):
        TextCodec(folder(tmp_path, "{% if %}"))


def test_half_a_surrogate_pair_is_no_prompt() -> None:
    with pytest.raises(RequestError, match="no text"):
        CODEC.prompt_ids(Request(request_id="r", prompt="\ud800"))


@pytest.mark.parametrize(
    "template", [b"\xff\xfe", b"{{ " + b"(" * 3000 + b"1" + b")" * 3000 + b" }}"]
)
def test_templates_that_cannot_be_read_are_refused(tmp_path: Path, template: bytes) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(template)
    with pytest.raises(CheckpointError, match="template"):
        TextCodec(tmp_path)

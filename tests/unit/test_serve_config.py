"""The service's file: strict, flags win, paths are relative to it, a key stays in its own file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from specbench import serve_config
from specbench.config import SpecConfig
from specbench.errors import ConfigError
from specbench.serve_config import ServeConfig, api_key, load_serve_config, read_api_key


def written(folder: Path, text: str) -> Path:
    path = folder / "serve.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_is_the_defaults() -> None:
    config = load_serve_config(None, {})
    assert config == ServeConfig()
    assert config.point.spec == SpecConfig.chain(3)
    assert (config.host, config.port, config.batch_size) == ("127.0.0.1", 8000, 4)


def test_the_example_of_the_module_is_read_in_full(tmp_path: Path) -> None:
    doc = serve_config.__doc__ or ""
    block = doc.split("::\n")[1].split("\n\nPaths")[0]
    config = load_serve_config(written(tmp_path, re.sub("^    ", "", block, flags=re.M)), {})
    assert config.point.spec.point_id == "k3b4n16"
    assert config.engine.threads == 2
    assert config.limits.drain_s == 30.0
    assert config.models.target == str(tmp_path / "models" / "target")
    assert config.models.capture_ids == (2, 4, 7)
    assert config.api_key_file == str(tmp_path / "api_key")


def test_flags_win_over_the_file_key_by_key(tmp_path: Path) -> None:
    path = written(tmp_path, "port = 1\nbatch_size = 2\n[engine]\nthreads = 2\nmax_len = 99\n")
    config = load_serve_config(path, {"port": 0, "engine": {"threads": 1}})
    assert (config.port, config.batch_size) == (0, 2)
    assert (config.engine.threads, config.engine.max_len) == (1, 99)


def test_a_point_on_the_command_line_replaces_that_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[point]\nnum_steps = 3\ntopk = 4\nnum_draft_tokens = 16\n")
    assert load_serve_config(path, {}).point.spec.topk == 4
    config = load_serve_config(path, {"point": {"num_steps": 5}})
    assert config.point.spec == SpecConfig.chain(5)


def test_the_engine_has_room_for_the_batch_and_for_more_if_asked(tmp_path: Path) -> None:
    assert load_serve_config(None, {"batch_size": 7}).engine.max_batch_size == 7
    path = written(tmp_path, "batch_size = 2\n[engine]\nmax_batch_size = 8\n")
    assert load_serve_config(path, {}).engine.max_batch_size == 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "Did you mean 'port'"),
        ("[models]\ntraget = 'x'", "Did you mean 'target'"),
        ("[limits]\ndrain = 1", "Did you mean 'drain_s'"),
        ("port = '1'", "is a str"),
        ("port = 70000", "port=70000"),
        ("models = 3", "models"),
        ("engine = 3", "engine"),
        ("batch_size = 0", "batch_size=0"),
        ("batch_size = 'x'", "is a str"),
        ("batch_size = 9\n[engine]\nmax_batch_size = 8", "batch_size=9"),
        ("[engine]\ndtype = 'int3'", "int3"),
        ("[limits]\nmax_in_flight = 0", "max_in_flight=0"),
        ("[limits]\ndrain_s = -1", "drain_s=-1"),
        ("[point]\nnum_steps = 1\ntopk = 1\nnum_draft_tokens = 16", "num_draft_tokens=16"),
        ("[models]\ncapture_ids = [1]\ncapture_default = true", "given together"),
        ("port = ", "is no TOML"),
    ],
)
def test_a_wrong_file_is_one_error_that_names_it(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=re.escape(says)) as error:
        load_serve_config(path, {})
    assert str(path) in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml cannot be read"):
        load_serve_config(tmp_path / "nothing.toml", {})
    path = tmp_path / "serve.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is no TOML"):
        load_serve_config(path, {})


def test_a_wrong_flag_is_not_blamed_on_a_file() -> None:
    with pytest.raises(ConfigError, match=r"^num_steps=1 topk=1"):
        load_serve_config(None, {"point": {"num_steps": 1, "topk": 1, "num_draft_tokens": 16}})


def key_of(text: bytes | None, folder: Path, environment: str | None = None) -> str | None:
    path = folder / "key"
    if text is not None:
        path.write_bytes(text)
    given: dict[str, Any] = {"api_key_file": str(path)}
    return read_api_key(load_serve_config(None, given), environment)


def test_the_key_is_read_from_its_file_unless_the_environment_has_one(tmp_path: Path) -> None:
    assert read_api_key(ServeConfig(), None) is None
    assert read_api_key(ServeConfig(), "") is None
    assert read_api_key(ServeConfig(), "k") == "k"
    assert key_of(b"from-file\n", tmp_path) == "from-file"
    assert key_of(b"from-file\n", tmp_path, "k") == "k"


@pytest.mark.parametrize("text", [None, b"", b"\n", b"two words", b"\xc3\xa9", b"a\nb"])
def test_a_key_file_without_a_key_is_refused(tmp_path: Path, text: bytes | None) -> None:
    with pytest.raises(ConfigError, match="API key file"):
        key_of(text, tmp_path)


def test_a_key_of_the_environment_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECBENCH_API_KEY", "s3cret")
    assert api_key() == "s3cret"
    monkeypatch.setenv("SPECBENCH_API_KEY", "")
    assert api_key() is None
    for wrong in ("s3cret\r", "two words", "\u00e9"):
        monkeypatch.setenv("SPECBENCH_API_KEY", wrong)
        with pytest.raises(ConfigError, match="SPECBENCH_API_KEY holds no key") as refused:
            api_key()
        assert wrong not in str(refused.value)


def test_what_an_engine_would_change_is_said_and_what_was_left_out_is_not() -> None:
    asked = {"num_steps": 1, "topk": 1, "num_draft_tokens": 16, "as_engine": "sglang"}
    point = load_serve_config(None, {"point": asked}).point
    assert point.spec.num_draft_tokens == 2
    (note,) = point.notes
    assert note.startswith("num_draft_tokens 16 becomes 2 (sglang uses num_steps + 1")
    assert load_serve_config(None, {"point": {"num_steps": 1}}).point.notes == ()
    assert load_serve_config(None, {"point": {"as_engine": "sglang"}}).point.notes == ()


@pytest.mark.parametrize("wrong", ["5", '"2,4"', "[2.5]", "[true]"])
def test_a_list_is_a_list_of_its_kind(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"capture_ids=.* is a "):
        load_serve_config(written(tmp_path, f"[models]\ncapture_ids = {wrong}\n"), {})

"""docs/service.md against the program: routes, defaults, example request and settings."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specbench.backends.base import BackendFacts
from specbench.collectors.exposition import Metrics
from specbench.collectors.live import Recorder
from specbench.request import SamplingParams
from specbench.serve_config import ServeConfig, load_serve_config
from specbench.server.app import build_app
from specbench.server.fields import Fields
from specbench.server.generate_route import MAX_NEW_TOKENS, read_generate
from specbench.server.openai_routes import (
    CHAT_MAX_TOKENS,
    COMPLETION_MAX_TOKENS,
    read_chat,
    read_completion,
)
from tests.fakes import FakeBackend
from tests.unit.server.test_app import with_server

LABELS = ("run_id", "version", "backend", "target", "draft")
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
MESSAGES = [{"role": "user", "content": "p"}]
# In the settings of the page these show what may be set, not what is so when left out.
EXAMPLES = {
    *("served_model_name", "api_key_file", "models.target", "models.draft", "models.capture_ids"),
    *("engine.max_batch_size", "point.topk", "point.num_draft_tokens"),
    *("models.capture_default", "point.as_engine"),
}


def test_the_table_of_routes_is_complete() -> None:
    backend = FakeBackend()
    facts = BackendFacts(backend="fake", target="t", draft="d")
    metrics = Metrics(Recorder(dict.fromkeys(LABELS, "x")))
    app = build_app(backend, facts, spec=backend.spec, batch_size=1, metrics=metrics)
    served = {
        f"{route.method} {route.resource.canonical}"
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert set(re.findall(r"`((?:GET|POST) /[^`]*)`", PAGE)) == served


def test_the_defaults_are_those_of_the_program() -> None:
    spec = FakeBackend().spec
    read = {
        "/v1/completions` ": read_completion({"prompt": "p"}, "m"),
        "/v1/chat/completions` ": read_chat({"messages": MESSAGES}, "m"),
        "/generate` ": read_generate({"text": "p"}, spec),
    }
    limits = (COMPLETION_MAX_TOKENS, CHAT_MAX_TOKENS, MAX_NEW_TOKENS)
    for (route, asked), limit in zip(read.items(), limits, strict=True):
        (line,) = (line for line in PAGE.splitlines() if f"`POST {route}" in line)
        assert line.endswith(f"tokens` {limit} |")
        sampling = asked.request.sampling
        assert sampling == SamplingParams(max_tokens=limit)
        said = re.search(r"\*\*Temperature\*\*: (\d+) .* `top_p` (\d+), `top_k` (\d+)\s+and "
                         r"`min_p` (\d+) .*; `seed` is (\d+)", PAGE, re.DOTALL)  # fmt: skip
        assert said is not None
        values = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)
        assert tuple(map(float, said.groups())) == (*map(float, values), float(sampling.seed))


def test_the_request_of_the_page_is_answered_under_the_name_that_is_set() -> None:
    (line,) = re.findall(r"^curl .*$", PAGE, re.MULTILINE)
    words = shlex.split(line)
    path = words[1].removeprefix("http://127.0.0.1:8000")
    body = json.loads(words[words.index("-d") + 1])

    async def use(server: Any, client: Any, _: Any) -> list[Any]:
        found = []
        for model in ({}, {"model": "tiny"}, {"model": "other"}):
            async with client.post(server.url + path, json=body | model) as answer:
                found.append((answer.status, await answer.json()))
        return found

    bare, named, wrong = with_server(use, model="tiny")
    assert (bare[0], named[0], wrong[0]) == (200, 200, 404)
    assert bare[1]["model"] == named[1]["model"] == "tiny"
    assert "Name 'tiny'" in wrong[1]["error"]["message"]
    assert set(wrong[1]["error"]) == {"message", "type", "param", "code"}


def settings() -> str:
    """The TOML block of the page that has them all."""
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (block,) = (block for block in blocks if "[limits]" in block)
    return block


def fields_of(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every key of the settings with its default, those of tables with the table's name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        inner = dataclasses.is_dataclass(value)
        found |= fields_of(value, f"{field.name}.") if inner else {prefix + field.name: value}
    return found


def test_every_setting_is_on_the_page_with_its_default() -> None:
    shown: dict[str, Any] = {}
    for table, body in re.findall(
        r"(?:^\[(\w+)\].*?\n|\A)(.*?)(?=^\[|\Z)", settings(), re.M | re.S
    ):
        lines = re.findall(r"^(?:# )?(\w+ = .*)$", body, re.MULTILINE)
        prefix = f"{table}." if table else ""
        shown |= {prefix + k: v for k, v in tomllib.loads("\n".join(lines)).items()}
    defaults = fields_of(ServeConfig())
    assert set(shown) == set(defaults)
    said = {key: value for key, value in shown.items() if key not in EXAMPLES}
    assert said == {key: defaults[key] for key in said}


def test_the_settings_of_the_page_are_read_in_full(tmp_path: Path) -> None:
    block = settings()
    (tmp_path / "serve.toml").write_text(block, encoding="utf-8")
    config = load_serve_config(tmp_path / "serve.toml", {})
    tables = tomllib.loads(block)
    assert config.served_model_name == tables["served_model_name"] == "tiny"
    for name in ("engine", "point", "limits"):
        for key, value in tables[name].items():
            assert getattr(getattr(config, name), key) == value


def log_events(path: Path) -> set[str]:
    """The events that a file logs: first argument of info, warning and error, second of write."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = re.fullmatch(r"(?:self\.)?_?log\.(\w+)|write", ast.unparse(node.func))
        event = node.args[called[1] == "write"] if called and node.args else None
        if isinstance(event, ast.Constant):
            found.add(str(event.value))
    return found


def test_the_table_of_the_log_is_complete() -> None:
    files = [*(ROOT / "specbench" / "server").glob("*.py"), ROOT / "specbench" / "commands.py"]
    (table,) = re.findall(r"\| event \| facts \|\n.*?\n(.*?)\n\n", PAGE, re.DOTALL)
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(set[str]().union(*map(log_events, files)))


def test_the_table_of_fields_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = re.findall(r"^\| (.*?) \| (.*?) \|(.*?)\|$", PAGE, re.MULTILINE)
    listed = {
        name.strip("`"): set(re.findall(r"`(\w+)`", acts + idle)) for name, acts, idle in rows
    }
    taken: dict[str, set[str]] = {}
    take = Fields.take

    def noted(fields: Fields, name: str) -> Any:
        taken.setdefault(fields._where.rstrip("."), set()).add(name)
        return take(fields, name)

    monkeypatch.setattr(Fields, "take", noted)
    both = listed["OpenAI's, both"]
    readers: dict[str, Callable[[], object]] = {
        "/v1/completions": lambda: read_completion({"prompt": "p"}, "m"),
        "/v1/chat/completions": lambda: read_chat({"messages": MESSAGES}, "m"),
        "/generate": lambda: read_generate({"text": "p"}, FakeBackend().spec),
    }
    for route, read in readers.items():
        taken.clear()
        read()
        taken.pop("messages[0]", None)
        assert taken.pop("") == listed[route] | (both if route.startswith("/v1") else set())
        assert taken == {name: listed[name] for name in taken}
        assert len(taken) == 1


@pytest.mark.parametrize("body", [{"n": 2}, {"logprobs": 1}, {"novel": 1}])
def test_what_is_not_here_is_refused_by_name(body: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(body))):
        read_completion({"prompt": "p"} | body, "m")

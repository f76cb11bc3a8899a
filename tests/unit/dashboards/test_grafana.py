from __future__ import annotations

import sys

import pytest

from specbench.dashboards.grafana import Grafana, token_from_environment
from specbench.errors import (
    BackendError,
    ConfigError,
    OutputError,
    SpecbenchError,
    UnreachableError,
)
from tests.prometheus_server import free_port
from tests.unit.dashboards.stand_in import StandIn

READ = ("GET", "/api/folders/x")


def _read(url: str, timeout_s: float = 10.0) -> object:
    grafana = Grafana(url, "secret", timeout_s=timeout_s)
    return grafana.found("reading", grafana.face.folder.get_folder, "x")


@pytest.mark.parametrize(
    ("status", "kind", "code", "says"),
    [
        (401, ConfigError, 2, "GRAFANA_TOKEN"),
        (403, ConfigError, 2, "role"),
        (409, OutputError, 2, "--overwrite"),
        (412, OutputError, 2, "--overwrite"),
        (400, BackendError, 3, "400"),
        (500, BackendError, 3, "500"),
    ],
)
def test_a_refusal_is_one_clear_error(
    stand_in: StandIn, status: int, kind: type[SpecbenchError], code: int, says: str
) -> None:
    stand_in.answers = {READ: (status, {"message": "because."})}
    with pytest.raises(kind, match=says) as caught:
        _read(stand_in.url)
    assert caught.value.exit_code == code
    assert "because. " in f"{caught.value} "
    assert "secret" not in str(caught.value)


def test_what_is_not_there_is_none(stand_in: StandIn) -> None:
    assert _read(stand_in.url) is None


def test_the_token_is_sent_as_bearer_below_the_prefix(stand_in: StandIn) -> None:
    stand_in.answers = {("GET", "/team/grafana/api/folders/x"): (200, {"uid": "x"})}
    assert _read(f"{stand_in.url}/team/grafana/") == {"uid": "x"}
    assert stand_in.tokens == ["Bearer secret"]


def test_a_slow_grafana(stand_in: StandIn) -> None:
    stand_in.slow = True
    with pytest.raises(UnreachableError, match=r"within 0\.2 s"):
        _read(stand_in.url, timeout_s=0.2)


def test_nobody_there() -> None:
    with pytest.raises(UnreachableError, match="Nothing answers"):
        _read(f"http://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("page", [b"<html>a message</html>", b"", b"[1, 2]"])
@pytest.mark.parametrize("status", [200, 502])
def test_something_else_answers(stand_in: StandIn, status: int, page: bytes) -> None:
    stand_in.answers = {READ: (status, page)}
    if status == 200 and page == b"[1, 2]":
        return  # valid JSON: what it means is the caller's business
    with pytest.raises(BackendError):
        _read(stand_in.url)


def test_a_redirect_is_not_followed_with_the_token(stand_in: StandIn) -> None:
    stand_in.answers = {READ: (302, {})}
    with pytest.raises(ConfigError, match="redirects"):
        _read(stand_in.url)
    assert len(stand_in.sent) == 1


@pytest.mark.parametrize(
    "url",
    [
        "localhost:3000",
        "ftp://host",
        "http://",
        "http://a:b@host",
        "http://host:99999",
        "http://h?x",
    ],
)
def test_an_address_that_is_not_one(url: str) -> None:
    with pytest.raises(ConfigError):
        Grafana(url, "secret")


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", " t\n")
    assert token_from_environment() == "t"
    monkeypatch.setenv("GRAFANA_TOKEN", "")
    with pytest.raises(ConfigError, match="GRAFANA_TOKEN"):
        token_from_environment()


def test_without_grafana_api_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grafana_api.grafana_face", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[dashboards\]'"):
        Grafana("http://127.0.0.1:3000", "secret")

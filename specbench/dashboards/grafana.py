"""Talk to Grafana through grafana-api: one clear error for whatever goes wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import urlsplit

from specbench.errors import BackendError, ConfigError, OutputError, UnreachableError

TOKEN_VARIABLE = "GRAFANA_TOKEN"
_TODO: Mapping[int, str] = {
    401: f"Put a valid service account token into {TOKEN_VARIABLE}.",
    403: "Give the token's service account the role Editor (Admin for data sources).",
}


def token_from_environment() -> str:
    """The token; never a flag, so that it stays out of process lists and histories.

    Raises:
        ConfigError: the variable is not set.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise ConfigError(
            f"{TOKEN_VARIABLE} is not set.",
            expected="The token of a Grafana service account, in the environment.",
        )
    return token


class Grafana:
    """One Grafana. ``face`` is grafana-api's own object; use it within ``answering``.

    Args:
        url: of Grafana's root, http or https, with its path prefix where it has one.
        token: of a service account.
        timeout_s: for one request.

    Raises:
        ConfigError: the URL is not one, or grafana-api is not installed.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        try:
            from grafana_api.grafana_face import GrafanaFace
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"Grafana needs {error.name}, which is not installed.",
                todo="Run pip install '.[dashboards]' in a clone of specbench.",
            ) from error
        host, prefix, scheme = _parts(self.url)
        self.face: Any = GrafanaFace(
            token, host=host, url_path_prefix=prefix, protocol=scheme, timeout=timeout_s
        )
        # A redirected POST would arrive as a GET, and the token elsewhere.
        self.face.api.s.max_redirects = 0

    def found(self, what: str, read: Any, *args: Any) -> Any:
        """The answer of ``read(*args)``, or None where Grafana has no such thing."""
        from grafana_api.grafana_api import GrafanaClientError

        with self.answering(what):
            try:
                return read(*args)
            except GrafanaClientError as error:
                if error.status_code == 404:
                    return None
                raise

    @contextmanager
    def answering(self, what: str) -> Iterator[None]:
        """Turn what goes wrong inside into one of our errors.

        Raises:
            ConfigError: 401 or 403, or the address redirects.
            OutputError: 409 or 412: something else has that name or uid.
            UnreachableError: nothing answers, or not in time.
            BackendError: any other refusal, or an answer that is not Grafana's.
        """
        import requests
        from grafana_api.grafana_api import GrafanaException

        try:
            yield
        except GrafanaException as error:
            self._refused(what, int(error.status_code), _said(error.response), error)
        except requests.exceptions.Timeout as error:
            raise UnreachableError(
                f"{self.url} did not answer within {self._timeout_s:g} s ({what}).",
                todo="Check the address, and that Grafana is up.",
            ) from error
        except requests.exceptions.TooManyRedirects as error:
            raise ConfigError(
                f"{self.url} redirects ({what}).", todo="Give the address that it leads to."
            ) from error
        except requests.exceptions.ConnectionError as error:
            raise UnreachableError(
                f"Nothing answers at {self.url} ({what}).",
                todo="Check the address, and that Grafana is up.",
            ) from error
        except (requests.exceptions.RequestException, ValueError, TypeError, KeyError) as error:
            raise BackendError(
                f"{self.url} does not answer as Grafana does ({what}).",
                todo="Give the address of Grafana's root.",
            ) from error

    def _refused(self, what: str, status: int, said: str, error: Exception) -> NoReturn:
        message = f"{self.url} refused: {status} ({what}). {said}".rstrip()
        if status in (401, 403):
            raise ConfigError(message, todo=_TODO[status]) from error
        if status in (409, 412):
            raise OutputError(
                message,
                expected="Nothing else of that name or uid.",
                todo="Give --overwrite to replace it, or rename what is there.",
            ) from error
        raise BackendError(message) from error


def _said(response: Any) -> str:
    """Grafana's own sentence, where it gave one."""
    message = response.get("message") if isinstance(response, dict) else None
    return f"{str(message).rstrip('.')}." if message else ""


def _parts(url: str) -> tuple[str, str, str]:
    """Host with port, path prefix and scheme, as grafana-api wants them."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises where it is not a port
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a URL: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{url!r} is not an address of Grafana.", expected="For example http://127.0.0.1:3000"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            "The address of Grafana holds a user, a query or a fragment.",
            expected=f"The address only; the token stands in {TOKEN_VARIABLE}.",
        )
    prefix = parts.path.strip("/")
    return parts.netloc, f"{prefix}/" if prefix else "", parts.scheme

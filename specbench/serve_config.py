"""Settings of ``specbench serve``: a strict TOML file, and flags that win over it.

A file in full::

    host = "127.0.0.1"           # beyond loopback an API key is required
    port = 8000                  # 0 takes a free one
    batch_size = 4
    log_level = "info"
    api_key_file = "api_key"     # the variable SPECBENCH_API_KEY wins over it
    served_model_name = "tiny"   # left out: the target's folder

    [models]                     # left out: the shipped pair
    target = "models/target"
    draft = "models/draft"
    capture_ids = [2, 4, 7]

    [engine]                     # config.EngineConfig
    threads = 2
    max_len = 2048

    [point]
    num_steps = 3
    topk = 4
    num_draft_tokens = 16

    [limits]
    max_in_flight = 256
    drain_s = 30

Paths are relative to the file's folder. Unknown keys are errors.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specbench.config import EngineConfig, SpecConfig, load_strict
from specbench.errors import ConfigError
from specbench.resolve import Override, resolve

API_KEY_VARIABLE = "SPECBENCH_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """The pair: folders, and the layer ids of a draft that names none."""

    target: str | None = None
    draft: str | None = None
    capture_ids: tuple[int, ...] | None = None
    capture_default: bool = False

    def __post_init__(self) -> None:
        if self.capture_ids and self.capture_default:
            raise ConfigError(
                "capture_ids and capture_default are given together.", expected="One of them."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PointConfig:
    """The point to serve, as asked; ``spec`` resolves it."""

    num_steps: int = 3
    topk: int | None = None
    num_draft_tokens: int | None = None
    as_engine: str | None = None

    @property
    def spec(self) -> SpecConfig:
        """The resolved point.

        Raises:
            ConfigError: the values contradict each other.
        """
        return self._resolved()[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """What ``as_engine`` would change in silence, a sentence each."""
        changes = self._resolved()[1] if self.as_engine is not None else ()
        return tuple(
            f"{one.name} {one.asked} becomes {one.resolved} ({one.reason})"
            for one in changes
            if getattr(self, one.name) is not None
        )

    def _resolved(self) -> tuple[SpecConfig, tuple[Override, ...]]:
        return resolve(
            num_steps=self.num_steps,
            topk=self.topk,
            num_draft_tokens=self.num_draft_tokens,
            as_engine=self.as_engine,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Bounds. ``drain_s`` is how long a stop waits for the requests in flight."""

    max_in_flight: int = 1024
    max_body_bytes: int = 2 * 1024 * 1024
    drain_s: float = 30.0
    live_clients: int = 16
    live_outputs: int = 8

    def __post_init__(self) -> None:
        for name in ("max_in_flight", "max_body_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"limits.{name}={getattr(self, name)}.", expected="At least 1.")
        for name in ("drain_s", "live_clients", "live_outputs"):
            if getattr(self, name) < 0:
                raise ConfigError(f"limits.{name}={getattr(self, name)}.", expected="0 or more.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """All settings of the service."""

    host: str = "127.0.0.1"
    port: int = 8000
    batch_size: int = 4
    log_level: str = "info"
    api_key_file: str | None = None
    served_model_name: str | None = None
    models: ModelsConfig = ModelsConfig()
    engine: EngineConfig = EngineConfig()
    point: PointConfig = PointConfig()
    limits: LimitsConfig = LimitsConfig()

    def __post_init__(self) -> None:
        if self.served_model_name == "":
            raise ConfigError("served_model_name is empty.", expected="A name, or no such key.")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port={self.port}.", expected="A TCP port, or 0 for a free one.")
        if not 1 <= self.batch_size <= self.engine.max_batch_size:
            raise ConfigError(
                f"batch_size={self.batch_size} is outside 1..{self.engine.max_batch_size}.",
                expected="At most engine.max_batch_size.",
            )


def load_serve_config(path: Path | None, flags: Mapping[str, Any]) -> ServeConfig:
    """The settings of ``path`` under ``flags``, which win key by key.

    The point is one setting: where a flag names any part of it, the file's is put aside, so that
    ``--num-steps 5`` does not meet the file's num_draft_tokens.

    Args:
        path: a TOML file; None takes the defaults.
        flags: the same nested keys, holding only what was given.

    Raises:
        ConfigError: the file cannot be read, is no TOML, has an unknown key or a wrong value, or
            two settings contradict each other.
    """
    values = {} if path is None else _read(path)
    for key, value in flags.items():
        table = values.get(key)
        merge = isinstance(value, Mapping) and isinstance(table, dict) and key != "point"
        values[key] = {**table, **value} if merge and table is not None else value
    engine = values.setdefault("engine", {})
    if isinstance(engine, dict) and isinstance(values.get("batch_size", 4), int):
        engine.setdefault("max_batch_size", max(1, values.get("batch_size", 4)))
    source = "the flags" if path is None else str(path)
    try:
        config = load_strict(ServeConfig, values, source=source)
        config.engine.rules.check(config.point.spec.topk)
    except ConfigError as error:
        if error.what.startswith(source) or path is None:
            raise
        raise ConfigError(
            f"{path}: {error.what}", expected=error.expected, todo=error.todo
        ) from error
    return config


def _read(path: Path) -> dict[str, Any]:
    """The parsed file, its paths made absolute."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(f"{path} is no TOML: {error}.") from error
    folder = path.absolute().parent
    _make_absolute(values, ("api_key_file",), folder)
    _make_absolute(values.get("models"), ("target", "draft"), folder)
    return values


def _make_absolute(table: Any, names: Sequence[str], folder: Path) -> None:
    """Paths of ``table``, if it is one; anything of a wrong type is refused later."""
    for name in names if isinstance(table, dict) else ():
        if isinstance(table.get(name), str):
            table[name] = str(folder / Path(table[name]).expanduser())


def checked_key(key: str, source: str) -> str:
    """``key``, which a header can carry.

    Raises:
        ConfigError: it is empty, or has spaces, line ends or characters beyond ASCII.
    """
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"{source} holds no key.",
            expected="Printable ASCII without spaces and line ends.",
        )
    return key


def api_key() -> str | None:
    """The key from the environment; never a flag, so that it stays out of process lists.

    Raises:
        ConfigError: the variable holds what no header can carry, for instance a line end.
    """
    key = os.environ.get(API_KEY_VARIABLE)
    return checked_key(key, API_KEY_VARIABLE) if key else None


def read_api_key(config: ServeConfig, environment: str | None) -> str | None:
    """The API key: the variable's, else the one in ``api_key_file``; None when there is neither.

    Raises:
        ConfigError: the file cannot be read, or holds no key of printable characters.
    """
    if environment or config.api_key_file is None:
        return environment or None
    path = Path(config.api_key_file)
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The API key file {path} cannot be read: {error}.",
            expected="One line of printable ASCII.",
        ) from error
    return checked_key(key, f"The API key file {path}")

"""A pair as the static checks see it: configs and tensor headers, read without judging them.

The strict readers of ``checkpoint`` refuse the first thing that is wrong. Here nothing is refused
that can be looked at, so that every fault of a pair is named at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specbench.checkpoint.draft import read_draft
from specbench.checkpoint.draft_names import canonical
from specbench.checkpoint.folder import Folder, open_folder, read_json
from specbench.checkpoint.headers import TensorEntry, read_array
from specbench.checkpoint.target import read_target
from specbench.doctor.findings import Fact, Finding, Severity
from specbench.errors import CheckpointError
from specbench.modelspec import DraftSpec

INNER = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One checkpoint: ``config`` is the language model's table, ``whole`` the whole file.

    ``tensors`` go by the engine's names; None where no header could be read, for ``unread``.
    """

    path: Path
    whole: Mapping[str, Any]
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorEntry] | None
    unread: str = ""

    @property
    def config_path(self) -> str:
        """Where its keys stand."""
        return f"{self.path.name}/config.json"

    def at(self, key: str) -> str:
        """Where a key of the config is, for a fact."""
        return f"{self.config_path}: {key}"

    def integer(self, key: str) -> int | None:
        """A whole number of the config, None where it is not one."""
        value = self.config.get(key)
        return value if type(value) is int else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape of a tensor, None where it is not there or not known."""
        entry = (self.tensors or {}).get(name)
        return None if entry is None else entry.shape

    def feature_width(self) -> int | None:
        """Width of one target feature as a draft's config claims it."""
        told = self.whole.get("target_hidden_size")
        return told if type(told) is int else self.integer("hidden_size")

    def values(self, name: str) -> np.ndarray | None:
        """A map's values; None where it is missing or of another kind than a map."""
        entry = (self.tensors or {}).get(name)
        if entry is None or len(entry.shape) != 1:
            return None
        try:
            return read_array(entry)
        except CheckpointError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A pair, and what the caller knows besides: ``given`` are physical layers of
    ``--capture-ids``, ``as_default`` is ``--capture-default``, ``d2t`` says what the map holds
    (``offsets`` or ``direct``), ``engine`` one engine to serve."""

    target: Side
    draft: Side
    given: tuple[int, ...] | None = None
    as_default: bool = False
    d2t: str = "offsets"
    engine: str = ""

    @property
    def offsets(self) -> np.ndarray | None:
        """d2t as offsets: target id minus draft id; None where it cannot be read."""
        values = self.draft.values("d2t")
        if values is None:
            return None
        whole: np.ndarray = values.astype(np.int64)
        return whole - np.arange(len(whole)) if self.d2t == "direct" else whole

    @property
    def layers(self) -> int | None:
        """n, the target's decoder layers."""
        return self.target.integer("num_hidden_layers")

    @property
    def arch(self) -> str:
        """The target's class, which changes what ids mean."""
        named = self.target.whole.get("architectures")
        return named[0] if isinstance(named, list) and named and type(named[0]) is str else ""

    @property
    def is_speculators(self) -> bool:
        """Written by speculators: Llama's keys are nested."""
        return "speculators_model_type" in self.draft.whole

    @property
    def flags(self) -> Mapping[str, Any]:
        """The table with EAGLE's own keys."""
        return self.draft.whole


def read_subject(
    target: Path | str,
    draft: Path | str,
    *,
    given: tuple[int, ...] | None = None,
    as_default: bool = False,
    d2t: str = "offsets",
    engine: str = "",
) -> Subject:
    """Open both folders.

    Raises:
        CheckpointError: a config cannot be read; a weights file that cannot is only noted.
    """
    return Subject(
        target=_side(Path(target), INNER),
        draft=_side(Path(draft), ("transformer_layer_config",)),
        given=given,
        as_default=as_default,
        d2t=d2t,
        engine=engine,
    )


def read_strictly(subject: Subject) -> DraftSpec:
    """The draft as the strict reader understands it, beside its target.

    Raises:
        CheckpointError: one of the two is refused.
    """
    target, _ = read_target(subject.target.path)
    draft, _ = read_draft(
        subject.draft.path,
        target,
        capture_ids=subject.given,
        capture_default=subject.as_default,
        d2t=subject.d2t,
    )
    return draft


def _side(path: Path, nested: tuple[str, ...]) -> Side:
    tensors: dict[str, TensorEntry] | None = None
    unread = ""
    try:
        folder: Folder = open_folder(path)
        whole: Mapping[str, Any] = folder.config
        tensors = {canonical(name): entry for name, entry in folder.tensors.items()}
    except CheckpointError as error:
        whole, unread = read_json(path / "config.json"), error.what
    inner = next((whole[k] for k in nested if isinstance(whole.get(k), Mapping)), None)
    config = whole if inner is None else inner
    return Side(path=path, whole=whole, config=config, tensors=tensors, unread=unread)


def check_files(subject: Subject) -> Iterator[Finding]:
    """Weights that cannot be read: an error, unless only the config was given."""
    for name, side in (("target", subject.target), ("draft", subject.draft)):
        if side.unread:
            broken = any(side.path.glob("*.safetensors"))
            yield Finding(
                code="files.unreadable",
                severity=Severity.ERROR if broken else Severity.WARNING,
                title=f"The {name}'s weights cannot be read; only its config was checked",
                evidence=(Fact(text=side.unread, where=str(side.path)),),
                remedy="Copy or export the safetensors files again.",
                score=1.0,
            )

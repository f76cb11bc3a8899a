"""Named prompt sets, and the requests that a run sends from them.

A set in the native form is a folder with ``prompts.jsonl`` (one prompt a line) and
``workload.json`` (its name, licence, categories, size and the SHA-256 of the prompts), or a lone
``.jsonl`` file of prompts. Shipped sets are found by name. Outside sets are read by scheme
(``sharegpt:PATH``, see :mod:`specbench.prompts.datasets`), random words are made by
``synthetic:WORDSxPROMPTS``.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specbench.errors import WorkloadError
from specbench.prompts.datasets import SCHEMES, load_dataset
from specbench.prompts.native import read_folder, read_prompts, sha256_of
from specbench.prompts.prompt import SYNTHETIC, Prompt
from specbench.prompts.synthetic import synthetic_prompts
from specbench.request import Message, Request, SamplingParams
from specbench.rows import utf8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A prompt set that was read whole and checked.

    ``sha256`` is that of the file the prompts came from (of their texts when they were made here).
    ``max_tokens`` is the longest reply that the set asks for, None when it says nothing.
    ``licence`` is empty when unknown. ``notes`` say what the loader left out or changed.
    """

    name: str
    prompts: tuple[Prompt, ...]
    sha256: str
    licence: str = ""
    source: str = ""
    description: str = ""
    max_tokens: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompts:
            raise WorkloadError(f"workload {self.name} is empty.", expected="At least one prompt.")

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories in the order of their first prompt."""
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts))

    @property
    def sizes(self) -> Mapping[str, int]:
        """Prompts of each category."""
        found = [prompt.category for prompt in self.prompts]
        return {category: found.count(category) for category in self.categories}

    @property
    def synthetic(self) -> bool:
        """True when a prompt is made of random words, on which acceptance means nothing."""
        return SYNTHETIC in self.categories

    @property
    def timed(self) -> bool:
        """True when every prompt has an arrival of its own."""
        return all(prompt.due_s is not None for prompt in self.prompts)

    def facts(self) -> dict[str, str]:
        """What provenance records of the set: hash, size, licence and source."""
        known = {
            "sha256": self.sha256,
            "prompts": str(len(self.prompts)),
            "licence": self.licence,
            "source": self.source,
        }
        return {f"workload.{self.name}.{key}": value for key, value in known.items() if value}

    def requests(
        self,
        n: int | None,
        sampling: SamplingParams,
        *,
        categories: Sequence[str] | None = None,
        repeat: bool = False,
        max_turns: int | None = None,
    ) -> tuple[Request, ...]:
        """The first ``n`` requests, spread evenly over the categories, in an order that is fixed.

        Categories take turns and each gives its prompts in file order, so that a smaller ``n`` is
        a prefix of a larger one. Two calls give equal requests, which is how the arms of a run
        are paired. Each request's seed follows from ``sampling.seed`` and its prompt. A prompt
        that asks for fewer tokens than ``sampling.max_tokens`` gets them.

        Args:
            n: how many; None for each prompt once.
            sampling: of every request.
            categories: take only these; None for all.
            repeat: begin again when the prompts are used up; otherwise that is an error.
            max_turns: most turns of a conversation; None for all.

        Raises:
            WorkloadError: more than there are, none, or a category that the set does not have.
        """
        order = self._balanced(categories)
        count = len(order) if n is None else n
        if count < 1:
            raise WorkloadError(f"{count} requests of {self.name} asked.", expected="At least 1.")
        if max_turns is not None and max_turns < 1:
            raise WorkloadError(f"max_turns={max_turns}.", expected="At least 1.")
        if count > len(order) and not repeat:
            raise WorkloadError(
                f"{count} requests asked, but {self.name} has {len(order)} prompts"
                f"{'' if categories is None else ' in ' + ', '.join(categories)}.",
                todo="Ask for fewer (--requests), or give a workload with more prompts.",
            )
        return tuple(
            self._request(order[i % len(order)], i // len(order), sampling, max_turns)
            for i in range(count)
        )

    def schedule(self, sampling: SamplingParams) -> tuple[tuple[float, Request], ...]:
        """The requests of a timed trace with their arrivals, in seconds from its first.

        Raises:
            WorkloadError: a prompt has no arrival.
        """
        if not self.timed:
            raise WorkloadError(
                f"{self.name} has no arrivals.", expected="A timed trace.", todo="Use trace:PATH."
            )
        timed = sorted((prompt.due_s or 0.0, i) for i, prompt in enumerate(self.prompts))
        start = timed[0][0]
        return tuple(
            (due - start, self._request(self.prompts[i], 0, sampling, None)) for due, i in timed
        )

    def _balanced(self, categories: Sequence[str] | None) -> list[Prompt]:
        """Prompts of ``categories``, one of each in turn until all are used."""
        for name in categories if categories is not None else ():
            if name not in self.categories:
                raise WorkloadError(
                    f"{self.name} has no category {name!r}.",
                    expected=f"One of {', '.join(self.categories)}.",
                )
        seen: dict[str, int] = {}
        ranked: list[tuple[int, int, Prompt]] = []
        place = {category: i for i, category in enumerate(self.categories)}
        for prompt in self.prompts:
            if categories is None or prompt.category in categories:
                rank = seen[prompt.category] = seen.get(prompt.category, -1) + 1
                ranked.append((rank, place[prompt.category], prompt))
        return [prompt for _, _, prompt in sorted(ranked, key=lambda entry: entry[:2])]

    def _request(
        self, prompt: Prompt, again: int, sampling: SamplingParams, max_turns: int | None
    ) -> Request:
        """The request of ``prompt``'s first turn; ``again`` counts earlier uses of the prompt."""
        digest = hashlib.sha256(f"{sampling.seed} {again} {prompt.prompt_id}".encode()).digest()
        limit = min(prompt.max_tokens or sampling.max_tokens, sampling.max_tokens)
        said = [Message(role="system", content=prompt.system)] if prompt.system else []
        said += [*prompt.history, Message(role="user", content=prompt.turns[0])]
        return Request(
            request_id=f"{prompt.prompt_id}{f'#r{again}' if again else ''}#0",
            messages=() if prompt.raw else tuple(said),
            prompt=prompt.turns[0] if prompt.raw else None,
            sampling=replace(
                sampling, seed=int.from_bytes(digest[:4], "big") >> 1, max_tokens=limit
            ),
            workload=self.name,
            category=prompt.category,
            prompt_id=prompt.prompt_id,
            follow_ups=prompt.turns[1:max_turns],
        )


def shipped() -> dict[str, Path]:
    """Name and folder of the sets that come with the program."""
    package = Path(__file__).parent
    for root in (package / "workloads", package.parent / "workloads"):
        if root.is_dir():
            return {p.name: p for p in sorted(root.iterdir()) if (p / "workload.json").is_file()}
    return {}


def load_workload(name: str | Path) -> Workload:
    """The workload called ``name``: a shipped one, ``scheme:...``, or a folder or file.

    A shipped name wins over a folder of that name here; write ``./name`` for the folder.

    Raises:
        WorkloadError: nothing has that name, or what has it is not well formed; the message
            gives file and line.
    """
    found = _found(name)
    # a file's name may hold bytes that no report can be written with
    return replace(found, name=utf8(found.name), source=utf8(found.source))


def _found(name: str | Path) -> Workload:
    asked = str(name)
    known = shipped()
    scheme, colon, rest = asked.partition(":")
    if colon and scheme == SYNTHETIC:
        return _synthetic(asked, rest)
    if colon and scheme in SCHEMES:
        return _outside(scheme, Path(rest).expanduser())
    if asked in known:
        return _folder(known[asked])
    path = Path(name).expanduser()
    try:
        is_folder, is_file = bool(asked) and path.is_dir(), path.is_file()
    except OSError:  # a name that no file can have, or a folder that may not be looked into
        is_folder = is_file = False
    if is_folder:
        return _folder(path)
    if is_file:
        prompts = read_prompts(path)
        return Workload(name=path.stem, prompts=prompts, sha256=sha256_of(path), source=path.name)
    names = [*known, *(f"{one}:PATH" for one in SCHEMES), "synthetic:WORDSxPROMPTS"]
    near = difflib.get_close_matches(scheme if colon else asked, [*known, *SCHEMES], n=1)
    raise WorkloadError(
        f"there is no workload {asked!r}.",
        expected=f"A folder, a file, or one of {', '.join(names)}.",
        todo=f"Did you mean {near[0]!r}?" if near else "",
    )


def _folder(folder: Path) -> Workload:
    manifest, prompts = read_folder(folder)
    return Workload(
        name=manifest.name,
        prompts=prompts,
        sha256=manifest.sha256,
        licence=manifest.licence,
        source=manifest.source,
        description=manifest.description,
        max_tokens=manifest.max_tokens,
    )


def _synthetic(name: str, spec: str) -> Workload:
    prompts = synthetic_prompts(spec)
    together = "\n".join(prompt.turns[0] for prompt in prompts)
    return Workload(
        name=name,
        prompts=prompts,
        sha256=hashlib.sha256(together.encode()).hexdigest(),
        source="random words",
        notes=("prompts are random words: timing only, acceptance means nothing",),
    )


def _outside(scheme: str, path: Path) -> Workload:
    prompts, notes = load_dataset(scheme, path)
    if not prompts:
        raise WorkloadError(f"{path} holds no prompt.", expected="At least one.")
    limits = [prompt.max_tokens for prompt in prompts if prompt.max_tokens is not None]
    return Workload(
        name=f"{scheme}:{path.name.split('.')[0]}",
        prompts=prompts,
        sha256=sha256_of(path),
        source=path.name,
        max_tokens=max(limits) if limits else None,
        notes=notes,
    )

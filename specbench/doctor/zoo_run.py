"""The whole doctor on one entry of the zoo, as a user would have it run: one ranked list.

Files, launch arguments, the probe of the wiring, the engine's own steps, parity probes, and the
shape of the counts. What does not change from one entry to the next is made once: the target's text
and its captured streams, the verdict on the sound files, parity of the sound engine.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from specbench import demo
from specbench.checkpoint.chat_template import read_template
from specbench.doctor.checks import static_findings
from specbench.doctor.checks_launch import check_launch, parse_launch
from specbench.doctor.checks_subject import Subject, read_subject
from specbench.doctor.checks_wiring import Loaded, load, probe_pair
from specbench.doctor.findings import Finding, has_error, rank
from specbench.doctor.parity import NAMES, parity_findings
from specbench.doctor.parity_setup import engines
from specbench.doctor.symptoms import diagnose
from specbench.doctor.symptoms_data import from_counts
from specbench.doctor.wiring import BUDGET, Verdict
from specbench.doctor.wiring_more import Reserve
from specbench.doctor.wiring_served import Served
from specbench.doctor.zoo import Fault
from specbench.doctor.zoo_signature import shape_of
from specbench.engine.engine import Engine
from specbench.engine.faults import inject
from specbench.errors import SpecbenchError
from specbench.request import Request

PARITY_PROMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What the doctor said of a pair: ``findings`` by rank; ``served`` are the engine's steps, None
    where none were made; ``shape`` is the signature measured against the sound pair's steps;
    ``stopped`` is the error that ended it, with what was found before."""

    findings: tuple[Finding, ...]
    served: Served | None
    shape: str
    seconds: float
    stopped: str = ""


class Bench:
    """Examines entries on the shipped pair, with what they share made once."""

    def __init__(
        self,
        work: Path,
        requests: Sequence[Request],
        *,
        further: Sequence[Request] = (),
        parity: Sequence[str] = NAMES,
        budget: int = BUDGET,
    ) -> None:
        """``work`` is a folder for edited copies; ``requests`` give the text of all probes, and
        ``further`` ones more of it where a probe does not decide.

        ``parity`` are the parity probes to run, ``budget`` the most choices of layers to score.
        """
        self.work, self.requests, self.further = work, tuple(requests), tuple(further)
        self._parity, self._budget = tuple(parity), budget
        reserve, shipped = Reserve(requests=self.further), read_subject(demo.TARGET, demo.DRAFT)
        self.sound: Loaded = load(shipped, self.requests, reserve=reserve)
        self._verdict: Verdict | None = None
        self._served: Served | None = None

    @property
    def served(self) -> Served:
        """The sound engine's steps on the sound pair."""
        if self._served is None:
            self.examine_sound()
        assert self._served is not None
        return self._served

    def examine_sound(self) -> Examined:
        """The shipped pair as it is."""
        return self._examine(read_subject(demo.TARGET, demo.DRAFT), self.sound)

    def examine_files(
        self, draft: Path, *, given: tuple[int, ...] | None = None, as_default: bool = False
    ) -> Examined:
        """Another draft for the shipped target, such as a re-export."""
        return self._examine(read_subject(demo.TARGET, draft, given=given, as_default=as_default))

    def examine(self, fault: Fault) -> Examined:
        """One entry."""
        target, draft = self.folders(fault)
        subject = read_subject(
            target, draft, given=fault.given, as_default=fault.as_default, engine=fault.engine
        )
        change = (lambda engine: inject(engine, fault.switch)) if fault.switch else None
        as_shipped = target == demo.TARGET and draft == demo.DRAFT and not fault.raw_prompts
        sound = self.sound if as_shipped else None
        return self._examine(subject, sound, fault, change)

    def folders(self, fault: Fault) -> tuple[Path, Path]:
        """Target and draft of an entry: edited copies where it edits them."""
        target, draft = demo.TARGET, demo.DRAFT
        if fault.draft is None and fault.target is None:
            return target, draft
        home = self.work / fault.name
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        if fault.target is None:
            (home / "target").symlink_to(target.resolve())
        else:
            target = _copy(target, home / "target")
            fault.target(target)
        if fault.draft is not None:
            draft = _copy(draft, home / "draft")
            fault.draft(draft)
        return target, draft

    def _examine(
        self,
        subject: Subject,
        loaded: Loaded | None = None,
        fault: Fault | None = None,
        change: Callable[[Engine], None] | None = None,
    ) -> Examined:
        begun = time.perf_counter()
        found: list[Finding] = list(static_findings(subject))
        if fault is not None and fault.launch:
            found += check_launch(parse_launch(fault.launch), subject.arch)
        served, stopped = None, ""
        if not has_error(found):
            try:
                loaded = loaded or self._load(subject, fault)
                served = self._run(subject, loaded, found, change)
            except SpecbenchError as error:
                stopped = str(error)
        return Examined(
            findings=rank(found),
            served=served,
            shape=self._shape(served, change),
            seconds=time.perf_counter() - begun,
            stopped=stopped,
        )

    def _load(self, subject: Subject, fault: Fault | None) -> Loaded:
        """An edited pair; the streams of the shipped target are those that were captured."""
        raw = fault is not None and fault.raw_prompts
        same = subject.target.path == demo.TARGET and not raw
        asked, more = self.requests, self.further
        if raw:
            asked, more = tuple(map(_as_text, asked)), tuple(map(_as_text, more))
        return load(
            subject,
            asked,
            reserve=Reserve(requests=more),
            captured=self.sound.captured if same else None,
            share_embedding=fault is not None and fault.share_embedding,
        )

    def _run(
        self,
        subject: Subject,
        loaded: Loaded,
        found: list[Finding],
        change: Callable[[Engine], None] | None,
    ) -> Served | None:
        """The dynamic part; what was found stands in ``found`` even when it breaks off."""
        sound = loaded is self.sound
        known = self._verdict if sound or _alike(loaded, self.sound) else None
        probed = probe_pair(
            subject,
            loaded,
            verdict=known,
            change=change,
            templates=self._forms(subject, loaded) and change is None,
            budget=self._budget,
        )
        found += probed.findings
        if sound:
            self._verdict = probed.verdict
        if change is not None or (sound and self._served is None):
            build, few = engines(loaded.pair, change=change), self.requests[:PARITY_PROMPTS]
            found += parity_findings(loaded.pair, build, few, names=self._parity).findings
        if probed.served is not None:
            found += _symptoms(probed.served)
            if sound and change is None:
                self._served = probed.served
        return probed.served

    def _forms(self, subject: Subject, loaded: Loaded) -> bool:
        """Whether other templates are tried: on the sound pair once, and where text differs."""
        if loaded is self.sound:
            return self._verdict is None
        own = read_template(subject.draft.path) is not None
        return own or loaded.captured is not self.sound.captured

    def _shape(self, served: Served | None, change: object) -> str:
        if served is None or self._served is None:
            return ""
        return shape_of(self._served, served)


def _alike(one: Loaded, other: Loaded) -> bool:
    """The same weights, wired alike, on the same text: the probe would score the same again."""
    mine, theirs = one.draft, other.draft
    return (
        one.captured is other.captured
        and mine.claimed == theirs.claimed
        and mine._t.keys() == theirs._t.keys()
        and all(torch.equal(x, theirs._t[name]) for name, x in mine._t.items())
    )


def _symptoms(served: Served) -> tuple[Finding, ...]:
    """What counters alone say of the same steps, without knowing what should be reached."""
    depth = int(max(served.accepted.max(), served.expected.max(), 1))
    counts = [int((served.accepted >= i).sum()) for i in range(1, depth + 1)]
    return diagnose(from_counts("counters of these steps", served.steps, counts))


def _as_text(request: Request) -> Request:
    """The last message alone, sent as a raw prompt."""
    return replace(request, messages=(), prompt=request.messages[-1].content, follow_ups=())


def _copy(source: Path, out: Path) -> Path:
    return Path(shutil.copytree(source, out))

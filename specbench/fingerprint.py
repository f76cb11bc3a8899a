"""What a run was of, topic by topic, and one hash over all that can change its answer.

Two runs can be compared when the topics that a figure depends on are equal. A topic that differs
is either the change under test (another draft, another version) or a reason not to compare.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ANSWER = ("max_tokens", "seed", "as_engine")
_SPEED = ("threads", "use_graphs")
_FOLLOWS = ("max_batch_size",)  # recorded by older versions: the largest batch size of the grid
_CACHE = ("prefill_chunk", "prefix_reuse", "max_len")  # how prompts fill it, how long it is
_LOAD = ("request_rate", "arrival", "burstiness")
_DEVICE = ("device", "compute_capability", "baseline_device", "baseline_compute_capability")
_VERIFICATION = ("verification", "threshold_single", "threshold_acc")
NOT_RECORDED = "not recorded"


class Scope(enum.IntEnum):
    """What a difference in a topic makes impossible to compare; a larger one includes the others.

    CHANGE: nothing, it is what a comparison may be about. SPEED: times. ALL: everything.
    """

    CHANGE = 0
    SPEED = 1
    ALL = 2


SCOPES = {
    "target": Scope.ALL,
    "tokenizer": Scope.ALL,
    "workload": Scope.ALL,
    "settings": Scope.ALL,
    "machine": Scope.SPEED,
    "engine settings": Scope.SPEED,
    "cache": Scope.SPEED,
    "backend": Scope.SPEED,
    "dtype": Scope.SPEED,
    "load": Scope.SPEED,
    "draft": Scope.CHANGE,
    "capture": Scope.CHANGE,
    "draft reading": Scope.CHANGE,
    "verification": Scope.CHANGE,
    "ranks": Scope.CHANGE,
    "kernels": Scope.CHANGE,
    "server": Scope.CHANGE,
    "specbench": Scope.CHANGE,
    "libraries": Scope.CHANGE,
}
_ANSWERING = (
    *("target", "tokenizer", "workload", "settings", "dtype", "draft", "capture"),
    *("draft reading", "verification", "ranks"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A topic in which two runs differ: its values in base and head, cut to what differs.

    A side that never heard of the topic, a reference of an older version, says ``NOT_RECORDED``.
    """

    topic: str
    base: str
    head: str

    @property
    def known(self) -> bool:
        """True when both sides recorded the topic, so that it is known to differ."""
        return NOT_RECORDED not in (self.base, self.head)

    @property
    def scope(self) -> Scope:
        """What it makes incomparable."""
        return SCOPES[self.topic]


def topics(run_json: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The facts of ``run.json`` by topic; a topic that the run knows nothing of is empty.

    What the models and the verifier did is taken from what the backend told, not from the flags:
    those of the engine say nothing of an outside server.
    """
    asked = _table(run_json.get("asked"))
    load, engine = _table(asked.get("load")), _table(asked.get("engine"))
    provenance = _table(run_json.get("provenance"))
    device, machine = _table(provenance.get("device")), _table(provenance.get("machine"))
    software, inputs = _table(provenance.get("software")), _table(provenance.get("inputs"))
    facts = _table(run_json.get("facts"))
    found = {
        "workload": {k: v for k, v in inputs.items() if k.startswith("workload.") and "sha" in k},
        "settings": _kept(asked, _ANSWER),
        "machine": {**_kept(machine, ("cpu", "cores_usable")), **_kept(device, _DEVICE)},
        "engine settings": _kept(engine, _SPEED),
        "cache": _kept(engine, _CACHE),
        "backend": _kept(facts, ("backend",)),
        "dtype": _kept(device, ("dtype",)),
        "load": _kept(load, _LOAD),
        "capture": _kept(device, ("capture_physical",)),
        "draft reading": _reading(device),
        "verification": _kept(device, _VERIFICATION),
        "ranks": _kept(device, ("tensor_parallel",)),
        "kernels": _kept(device, ("attention", "kernels", "weights")),
        "server": _kept(device, ("server", "baseline_server")),
        "specbench": _kept(software, ("specbench", "specbench_source_sha256")),
        "libraries": _kept(software, ("python", "torch", "sglang", "vllm")),
    }
    for name in ("target", "draft", "tokenizer"):
        hashes = {k: v for k, v in inputs.items() if k.startswith(f"sha256:{name}/")}
        found[name] = hashes or ({} if name == "tokenizer" else _kept(facts, (name,)))
    return {topic: {key: str(value) for key, value in found[topic].items()} for topic in SCOPES}


def fingerprint(run_json: Mapping[str, Any]) -> str:
    """SHA-256 over everything that is asked for and changes the tokens of a run: models and how
    the draft is read, tokenizer, prompts, settings, points, dtype, captured layers, verification
    and ranks. Not the machine, not the code: they change tokens by rounding alone."""
    by_topic = topics(run_json)
    content = {topic: by_topic[topic] for topic in _ANSWERING}
    text = json.dumps([content, _specs(run_json.get("points"))], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _specs(points: Any) -> Any:
    """The points without a second arm of the same spec (``--noise-floor``), which adds nothing."""
    if not isinstance(points, Mapping):
        return points
    found: dict[str, Any] = {}
    for name, spec in points.items():
        if spec not in found.values():
            found[name] = spec
    return found


def differences(
    base: Mapping[str, Mapping[str, str]], head: Mapping[str, Mapping[str, str]]
) -> tuple[Difference, ...]:
    """The topics in which two runs differ or are not known to agree, the gravest first.

    Arms are matched by batch size, so that what follows from the grid's largest one is no
    difference: an arm that both runs have ran as many requests together in both.
    """
    found = [
        Difference(topic=topic, base=_told(old, new), head=_told(new, old))
        for topic in SCOPES
        if (old := _own(base.get(topic))) != (new := _own(head.get(topic))) and (old or new)
    ]
    return tuple(sorted(found, key=lambda one: -one.scope))


def _own(values: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Without what follows from the grid."""
    return values and {name: value for name, value in values.items() if name not in _FOLLOWS}


def _told(values: Mapping[str, str] | None, other: Mapping[str, str] | None) -> str:
    """What differs from ``other``; a hash is cut to twelve digits."""
    if values is None:
        return NOT_RECORDED
    other = other or {}
    shown = [
        f"{key.removeprefix('sha256:')} {value[:12] if 'sha256' in key else value}"
        for key, value in values.items()
        if other.get(key) != value
    ]
    return ", ".join(shown) or "nothing"


def _reading(device: Mapping[str, Any]) -> dict[str, Any]:
    """How the draft's files were taken: its vocabulary map (``--d2t``) and its embedding.

    Of each policy its first word: what follows gives the reason, and changes no token.
    """
    try:
        spec = _table(json.loads(device.get("draft_spec") or "{}"))
    except (TypeError, ValueError):
        spec = {}
    said = {**_kept(spec, ("d2t_policy",)), **_kept(device, ("draft_embedding",))}
    return {name: re.split("[:,]", str(policy))[0] for name, policy in said.items()}


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _kept(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name) is not None}

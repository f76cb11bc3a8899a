from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from specbench.fingerprint import (
    NOT_RECORDED,
    SCOPES,
    Scope,
    differences,
    fingerprint,
    topics,
)

RUN: dict[str, Any] = {
    "asked": {
        "max_tokens": 64,
        "seed": 0,
        "as_engine": None,
        "engine": {
            "threads": 1,
            "max_batch_size": 4,
            "use_graphs": True,
            "prefill_chunk": 256,
            "prefix_reuse": False,
            "max_len": 1024,
        },
        "load": {"request_rate": None, "arrival": "poisson", "burstiness": 1.0},
    },
    "points": {"k3": {"num_steps": 3, "topk": 1, "num_draft_tokens": 4}},
    "facts": {"backend": "inprocess", "target": "t", "draft": "d"},
    "provenance": {
        "software": {"python": "3.11", "torch": "2.13", "specbench_source_sha256": "aa"},
        "machine": {"cpu": "x", "cores_usable": "2", "load_average": "0.1"},
        "device": {
            "device": "cpu",
            "dtype": "float32",
            "capture_physical": "2,4,7",
            "draft_embedding": "shared: the draft ships none",
            "draft_spec": json.dumps({"d2t_policy": "offsets, checked against t2d"}),
            "verification": "target_only",
        },
        "inputs": {
            "sha256:target/config.json": "1" * 64,
            "sha256:draft/config.json": "2" * 64,
            "sha256:tokenizer/tokenizer.json": "3" * 64,
            "workload.default.sha256": "4" * 64,
            "path:target": "/somewhere",
        },
    },
}


def changed(*path: str, value: Any) -> dict[str, Any]:
    run = copy.deepcopy(RUN)
    table = run
    for name in path[:-1]:
        table = table[name]
    table[path[-1]] = value
    return run


def test_a_second_plain_arm_is_not_another_run() -> None:
    base = {"num_steps": 0, "topk": 1, "num_draft_tokens": 1}
    plain = changed("points", value={"base": base, **RUN["points"]})
    floor = changed("points", value={"base": base, **RUN["points"], "base-again": base})
    assert fingerprint(floor) == fingerprint(plain) != fingerprint(RUN)


@pytest.mark.parametrize(
    ("path", "topic", "answers"),
    [
        (("provenance", "inputs", "sha256:target/config.json"), "target", True),
        (("provenance", "inputs", "sha256:draft/config.json"), "draft", True),
        (("provenance", "inputs", "sha256:tokenizer/tokenizer.json"), "tokenizer", True),
        (("provenance", "inputs", "workload.default.sha256"), "workload", True),
        (("asked", "max_tokens"), "settings", True),
        (("provenance", "device", "dtype"), "dtype", True),
        (("provenance", "device", "capture_physical"), "capture", True),
        (("provenance", "device", "draft_embedding"), "draft reading", True),
        (("provenance", "device", "verification"), "verification", True),
        (("provenance", "device", "threshold_acc"), "verification", True),
        (("provenance", "device", "tensor_parallel"), "ranks", True),
        (("provenance", "machine", "cpu"), "machine", False),
        (("asked", "engine", "threads"), "engine settings", False),
        (("asked", "engine", "prefill_chunk"), "cache", False),
        (("asked", "engine", "prefix_reuse"), "cache", False),
        (("asked", "engine", "max_len"), "cache", False),
        (("facts", "backend"), "backend", False),
        (("asked", "load", "arrival"), "load", False),
        (("provenance", "device", "baseline_device"), "machine", False),
        (("provenance", "device", "server"), "server", False),
        (("provenance", "device", "baseline_server"), "server", False),
        (("provenance", "software", "torch"), "libraries", False),
        (("provenance", "software", "specbench_source_sha256"), "specbench", False),
    ],
)
def test_each_fact_belongs_to_one_topic(path: tuple[str, ...], topic: str, answers: bool) -> None:
    other = changed(*path, value="9" * 64)
    found = differences(topics(RUN), topics(other))
    assert [one.topic for one in found] == [topic]
    assert (fingerprint(other) != fingerprint(RUN)) is answers


@pytest.mark.parametrize(
    "path", [("provenance", "machine", "load_average"), ("provenance", "inputs", "path:target")]
)
def test_what_changes_nothing_is_no_topic(path: tuple[str, ...]) -> None:
    other = changed(*path, value="else")
    assert differences(topics(RUN), topics(other)) == ()
    assert fingerprint(other) == fingerprint(RUN)


def test_points_are_in_the_fingerprint() -> None:
    assert fingerprint(changed("points", value={})) != fingerprint(RUN)


def test_the_gravest_comes_first_and_hashes_are_cut() -> None:
    other = changed("provenance", "machine", "cpu", value="y")
    other["provenance"]["inputs"]["sha256:target/config.json"] = "8" * 64
    first, second = differences(topics(RUN), topics(other))
    assert (first.topic, first.scope, first.base) == (
        "target",
        Scope.ALL,
        f"target/config.json {'1' * 12}",
    )
    assert (second.topic, second.scope, second.head) == ("machine", Scope.SPEED, "cpu y")


def test_models_without_hashes_are_known_by_name() -> None:
    bare = changed("provenance", "inputs", value={})
    assert topics(bare)["target"] == {"target": "t"}
    assert topics(bare)["tokenizer"] == {}
    other = copy.deepcopy(bare)
    other["facts"]["target"] = "u"
    assert [one.topic for one in differences(topics(bare), topics(other))] == ["target"]


def test_what_follows_from_the_batch_sizes_of_a_grid_is_no_difference() -> None:
    wider = changed("asked", "engine", "max_batch_size", value=8)
    assert differences(topics(RUN), topics(wider)) == ()
    assert "max_batch_size" not in topics(RUN)["engine settings"]
    old = topics(RUN)  # a reference of a version that recorded it
    old["engine settings"] = {**old["engine settings"], "max_batch_size": "1"}
    assert differences(old, topics(RUN)) == ()
    (found,) = differences(old, topics(changed("asked", "engine", "threads", value=2)))
    assert (found.topic, found.base, found.head) == ("engine settings", "threads 1", "threads 2")


def test_an_empty_record_has_every_topic_empty() -> None:
    assert topics({}) == {topic: {} for topic in SCOPES}


def read_as(policy: str) -> dict[str, Any]:
    return changed("provenance", "device", "draft_spec", value=json.dumps({"d2t_policy": policy}))


def test_a_direct_map_is_another_reading_and_a_reason_is_none() -> None:
    (found,) = differences(topics(RUN), topics(read_as("direct: target ids, as asked")))
    assert (found.topic, found.scope) == ("draft reading", Scope.CHANGE)
    assert (found.base, found.head) == ("d2t_policy offsets", "d2t_policy direct")
    unchecked = read_as("offsets, no t2d to check against")
    assert differences(topics(RUN), topics(unchecked)) == ()
    assert fingerprint(unchecked) == fingerprint(RUN)


@pytest.mark.parametrize("said", ["{", "[1]", 3])
def test_a_draft_spec_that_is_none_says_nothing(said: object) -> None:
    run = changed("provenance", "device", "draft_spec", value=said)
    assert topics(run)["draft reading"] == {"draft_embedding": "shared"}


def test_a_topic_that_one_side_never_heard_of_is_not_known_to_differ() -> None:
    new = topics(RUN)
    old = {topic: facts for topic, facts in new.items() if topic != "verification"}
    (found,) = differences(old, new)
    assert (found.base, found.head) == (NOT_RECORDED, "verification target_only")
    assert not found.known
    assert differences(old, {**new, "verification": {}}) == ()

"""Flags over profiles: what is given wins, what conflicts is refused."""

from __future__ import annotations

import argparse

import pytest

from specbench import flags
from specbench.cli import build_parser
from specbench.config import Arrival
from specbench.errors import ConfigError
from specbench.grid import expand
from specbench.serve_config import load_serve_config
from specbench.verification import Verification, VerifyRules


def _args(*words: str, command: str = "sweep") -> argparse.Namespace:
    return build_parser().parse_args([command, *words])


def test_the_quick_profile_has_enough_points_of_both_kinds_at_two_batch_sizes() -> None:
    spec = flags.sweep_spec(_args())

    points = [p.spec for p in spec.grid().points]
    assert len(points) >= 12
    assert sum(p.is_chain for p in points) >= 4
    assert sum(p.topk > 1 for p in points) >= 4
    assert spec.batch_sizes == (1, 4)


def test_every_profile_is_legal() -> None:
    for name in flags.PROFILES:
        spec = flags.sweep_spec(_args("--profile", name))
        grid = expand(spec.num_steps, spec.topk, spec.num_draft_tokens)
        assert len(grid.points) > 1
        assert spec.engine.max_batch_size == max(spec.batch_sizes)


def test_flags_win_over_the_profile() -> None:
    spec = flags.sweep_spec(
        _args(
            "--profile", "full", "--num-steps", "1..3", "--topk", "1", "--batch-size", "2,8",
            "--temperature", "0,0.7", "--requests", "12", "--workload", "a", "--workload", "b",
            "--seed", "5", "--threads", "2", "--dtype", "bfloat16", "--capture-ids", "2,4,7",
        )
    )  # fmt: skip

    assert spec.num_steps == (1, 2, 3)
    assert spec.batch_sizes == (2, 8)
    assert spec.temperatures == (0.0, 0.7)
    assert spec.workloads == ("a", "b")
    assert spec.capture_ids == (2, 4, 7)
    assert (spec.requests, spec.seed) == (12, 5)
    assert (spec.engine.threads, spec.engine.dtype, spec.engine.max_batch_size) == (
        2,
        "bfloat16",
        8,
    )


def test_the_long_names_of_sglang_are_accepted() -> None:
    spec = flags.sweep_spec(
        _args(
            "--speculative-num-steps", "3", "--speculative-eagle-topk", "2",
            "--speculative-num-draft-tokens", "8",
        )
    )  # fmt: skip
    assert (spec.num_steps, spec.topk, spec.num_draft_tokens) == ((3,), (2,), (8,))


def test_fewer_requests_than_blocks_of_the_profile_take_fewer_blocks() -> None:
    assert flags.sweep_spec(_args("--requests", "1")).blocks == 1


def test_blocks_that_are_asked_for_are_kept_at_every_batch_size() -> None:
    profile, asked = flags.sweep_spec(_args()), flags.sweep_spec(_args("--blocks", "5"))
    assert (profile.blocks_at(1), profile.blocks_at(4)) == (10, 2)
    assert (asked.blocks_at(1), asked.blocks_at(4)) == (5, 5)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--server", "http://127.0.0.1:1", "--target", "x"), "--server and --target"),
        (("--capture-ids", "1", "--capture-default"), "--capture-ids and --capture-default"),
        (("--num-steps", "x"), "--num-steps"),
        (("--topk", "0"), "--topk: 0 is too small"),
        (("--temperature", "hot"), "--temperature"),
        (("--arrival", "gamma"), "without --request-rate"),
        (("--arrival", "trace", "--request-rate", "5"), "--arrival trace and --request-rate"),
        (("--arrival", "trace", "--burstiness", "2"), "without --request-rate"),
        (("--requests", "3", "--blocks", "5"), "requests=3 blocks=5"),
        (("--baseline-server", "http://127.0.0.1:1"), "--baseline-server is given without --serv"),
        (
            ("--server", "http://a", "--baseline-server", "http://b", "--num-steps", "0"),
            "nothing is measured but plain decoding",
        ),
        (("--timeout", "0"), "timeout_s=0"),
        (("--timeout", "inf"), "timeout_s=inf"),
        (("--timeout", "nan"), "timeout_s=nan"),
    ],
)
def test_contradictions_are_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        flags.sweep_spec(_args(*words))


def test_an_open_loop_takes_its_shape() -> None:
    load = flags.sweep_spec(
        _args("--request-rate", "5", "--arrival", "gamma", "--burstiness", "0.5")
    ).load
    assert load.open_loop
    assert (load.arrival, load.burstiness) == (Arrival.GAMMA, 0.5)


def test_the_times_of_a_trace_need_no_rate() -> None:
    load = flags.sweep_spec(_args("--arrival", "trace")).load
    assert (load.arrival, load.request_rate) == (Arrival.TRACE, None)


@pytest.mark.parametrize("loop", [("--arrival", "trace"), ("--request-rate", "5")])
def test_an_open_loop_stays_in_one_piece_unless_blocks_are_asked(loop: tuple[str, str]) -> None:
    for profile in ("quick", "full"):
        spec = flags.sweep_spec(_args(*loop, "--profile", profile))
        assert {spec.blocks_at(size) for size in spec.batch_sizes} == {1}
    spec = flags.sweep_spec(_args(*loop, "--blocks", "4"))
    assert {spec.blocks_at(size) for size in spec.batch_sizes} == {4}


def test_servers_and_the_limit_of_a_request_reach_the_sweep() -> None:
    spec = flags.sweep_spec(
        _args("--server", "http://a", "--baseline-server", "http://b", "--timeout", "7.5")
    )
    assert (spec.server, spec.baseline_server, spec.load.timeout_s) == ("http://a", "http://b", 7.5)
    assert flags.sweep_spec(_args()).load.timeout_s == 600


def test_one_point_is_read_and_checked() -> None:
    assert flags.point("3,4,16", "--explain").num_draft_tokens == 16
    with pytest.raises(ConfigError, match="num_draft_tokens=16"):
        flags.point("3,1,16", "--explain")
    with pytest.raises(ConfigError, match="--explain"):
        flags.point("3,4", "--explain")


def test_serve_gives_what_was_given_by_the_keys_of_its_config_file() -> None:
    assert flags.serve_settings(_args(command="serve")) == {}
    words = ("--num-steps", "5", "--port", "0", "--capture-ids", "2,4", "--threads", "2")
    assert flags.serve_settings(_args(*words, command="serve")) == {
        "port": 0,
        "models": {"capture_ids": (2, 4)},
        "engine": {"threads": 2},
        "point": {"num_steps": 5},
    }


def test_what_stands_beside_explain_is_refused() -> None:
    flags.check_alone(_args("--explain", "3,4,16"), "explain")
    with pytest.raises(ConfigError, match=r"--num-steps, --out, --live: has no meaning with --ex"):
        flags.check_alone(
            _args("--explain", "3,4,16", "--num-steps", "0", "--out", "x", "--live"), "explain"
        )


def test_only_real_settings_count_as_given() -> None:
    assert not flags.any_sweep_flag(_args("--resume", "--out", "x"))
    assert flags.any_sweep_flag(_args("--resume", "--out", "x", "--seed", "3"))
    assert flags.any_sweep_flag(_args("--capture-default"))


def test_the_interval_of_gpu_samples_is_checked_and_no_setting_of_the_sweep() -> None:
    assert flags.gpu_interval_s(_args()) == 0.2
    assert flags.gpu_interval_s(_args("--gpu-interval", "1.5")) == 1.5
    assert flags.gpu_interval_s(_args("--gpu-interval", "0")) == 0
    assert not flags.any_sweep_flag(_args("--gpu-interval", "1"))
    for wrong in ("0.001", "-1", "nan", "inf"):
        with pytest.raises(ConfigError, match="out of range"):
            flags.gpu_interval_s(_args(f"--gpu-interval={wrong}"))


def test_where_metrics_go_is_no_setting_of_the_sweep() -> None:
    words = (
        "--metrics-port",
        "0",
        "--metrics-linger",
        "3",
        "--metrics-push",
        "http://gateway:9091",
    )
    assert not flags.any_sweep_flag(_args(*words))
    config = flags.publish_config(_args(*words), "key")
    assert (config.listen, config.linger_s, config.push) == ("0", 3.0, "http://gateway:9091")
    assert config.api_key == "key"
    assert not flags.publish_config(_args(), None).wanted
    with pytest.raises(ConfigError, match="--metrics-port=x"):
        flags.publish_config(_args("--metrics-port", "x"), None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--backend", "sglang"), "--backend is given without --server"),
        (("--model", "m"), "--model is given without --server"),
        (("--server", "http://s", "--dtype", "float32", "--max-len", "9"), "--dtype, --max-len"),
        (("--server", "http://s", "--capture-ids", "1,2"), "--capture-ids with --server"),
        (("--target", "t"), "--target t is given without --draft"),
    ],
)
def test_flags_that_would_say_nothing_are_refused(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        flags.sweep_spec(_args(*words))


def test_a_lone_target_decodes_plainly() -> None:
    assert flags.sweep_spec(_args("--target", "t", "--num-steps", "0")).draft is None


def test_verification_is_set_by_flags_and_refused_where_it_does_nothing() -> None:
    spec = flags.sweep_spec(_args("--topk", "1", "--verification", "block"))
    assert spec.engine.verification is Verification.BLOCK
    assert {point.spec.topk for point in spec.grid().points} == {1}
    low = flags.sweep_spec(_args("--threshold-single", "0.5", "--threshold-acc", "0.9"))
    assert low.engine.rules == VerifyRules(threshold_single=0.5, threshold_acc=0.9)
    grid = flags.sweep_spec(_args("--topk", "1,4", "--verification", "rejection")).grid()
    assert {point.spec.topk for point in grid.points} == {1}
    gone = [one for one in grid.dropped if "verification=rejection checks chains" in one.reason]
    assert gone
    assert {one.topk for one in gone} == {4}
    alone = flags.sweep_spec(
        _args("--num-steps", "2", "--topk", "4", "--verification", "rejection", "--batch-size", "1")
    )
    with pytest.raises(ConfigError, match="No point of the grid is legal"):
        alone.grid()
    with pytest.raises(ConfigError, match="--threshold-acc with --server"):
        flags.sweep_spec(_args("--server", "http://127.0.0.1:1", "--threshold-acc", "0.9"))


def test_verification_flags_reach_the_service() -> None:
    words = ("--verification", "one_hot", "--num-steps", "2")
    config = load_serve_config(None, flags.serve_settings(_args(*words, command="serve")))
    assert config.engine.rules == VerifyRules(method=Verification.ONE_HOT)
    tree = (*words, "--topk", "4", "--num-draft-tokens", "8")
    with pytest.raises(ConfigError, match="verification=one_hot checks chains"):
        load_serve_config(None, flags.serve_settings(_args(*tree, command="serve")))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--num-steps 3 --topk 1 --num-draft-tokens 8", "with --topk 1 and --num-steps 3: .* 4"),
        ("--num-steps 1..3 --topk 1 --num-draft-tokens 4", "so here 2,3,4"),
        ("--num-steps 3 --topk 1 --num-draft-tokens 4,9", "--num-draft-tokens 4,9 with --topk 1"),
        ("--num-steps 0 --topk 4", "--topk 4: has no meaning with --num-steps 0"),
        ("--num-steps 0 --topk 1,2 --num-draft-tokens 8", "--topk 1,2, --num-draft-tokens 8: has"),
    ],
)
def test_numbers_of_a_grid_that_would_set_nothing_are_refused(words: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        flags.sweep_spec(_args(*words.split()))


@pytest.mark.parametrize(
    "words",
    [
        "--num-steps 3 --topk 1 --num-draft-tokens 4",
        "--num-steps 0,5,2 --topk 1 --num-draft-tokens 3,6",
        "--num-steps 3 --topk 1",
        "--num-steps 0 --topk 1 --num-draft-tokens 1",
        "--num-steps 1 --topk 1 --num-draft-tokens 16 --as-engine sglang",
    ],
)
def test_what_a_chain_takes_anyway_may_be_said(words: str) -> None:
    assert flags.sweep_spec(_args(*words.split())).grid().points


def _notes(words: str) -> tuple[str, ...]:
    args = _args(*words.split())
    spec = flags.sweep_spec(args)
    return flags.grid_notes(args, spec, spec.grid())


def test_chains_beside_trees_are_said_to_take_numbers_of_their_own() -> None:
    mixed = "--num-steps 0,2,3 --topk 1,2"
    assert _notes(f"{mixed} --num-draft-tokens 4,6") == (
        "--num-draft-tokens 4,6 is for trees; the chains (k2, k3) take num_steps + 1 each",
    )
    assert _notes(mixed) == ()  # the profile's list was not asked for
    assert _notes("--num-steps 2 --topk 2 --num-draft-tokens 4") == ()


def test_every_override_of_an_engine_is_said() -> None:
    words = "--num-steps 1 --topk 1,2 --num-draft-tokens 8,16 --as-engine vllm"
    (note,) = _notes(words)
    assert note.startswith("k1: num_draft_tokens 8 becomes 2 (")
    assert "num_draft_tokens 16 becomes 2" in note
    assert "topk 2 becomes 1 (vLLM 0.32 drafts chains only)" in note

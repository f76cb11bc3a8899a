"""Faults of the zoo that launch arguments make, and engines that read the ids otherwise."""

from __future__ import annotations

from specbench.doctor.zoo import Fault, cause

CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
EAGLE3 = f"--speculative-algorithm EAGLE3 {CHAIN}"

LAUNCH_FAULTS: tuple[Fault, ...] = (
    Fault(
        name="launch_eagle", failures=("F8",), kind="fc skipped", shape="one",
        launch=f"--speculative-algorithm EAGLE {CHAIN}", causes=cause("launch.algorithm", "EAGLE"),
    ),
    Fault(
        name="launch_steps_win", failures=("F41",), kind="num_draft_tokens overridden",
        shape="none",
        launch="--speculative-algorithm EAGLE3 --speculative-num-steps 1 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 16",
        causes=cause("launch.override", "num_draft_tokens 16 silently becomes 2"),
    ),
    Fault(
        name="launch_threshold", failures=("F39",), kind="lossy acceptance", shape="none",
        launch=f"{EAGLE3} --speculative-accept-threshold-single 0.5",
        causes=cause("launch.lossy", "threshold-single"),
    ),
    Fault(
        name="launch_simulated", failures=("F39",), kind="lossy acceptance", shape="none",
        launch=f"SGLANG_SIMULATE_ACC_LEN=3 {EAGLE3}", causes=cause("launch.lossy", "SIMULATE"),
    ),
    Fault(
        name="launch_quantised", failures=("F32",), kind="draft quantised", shape="flat",
        launch=f"{EAGLE3} --quantization fp8", causes=cause("launch.quantised", "--quantization"),
    ),
    Fault(
        name="launch_fp8_cache", failures=("F33",), kind="draft's cache in fp8", shape="long",
        launch=f"{EAGLE3} --kv-cache-dtype fp8_e5m2", causes=cause("launch.quantised", "cache"),
    ),
    Fault(
        name="served_by_vllm_016", failures=("F2", "F3"), kind="another engine's convention",
        shape="first", engine="vllm==0.16", causes=cause("ids.engines", "vllm"),
    ),
    Fault(
        name="served_by_vllm_032", failures=("F3", "F49"), kind="another engine's convention",
        shape="first", engine="vllm==0.32", causes=cause("ids.engines", "vllm"),
    ),
)  # fmt: skip

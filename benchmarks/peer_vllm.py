"""vLLM's CPU build for benchmarks/engine.py: PYTHON peer_vllm.py TARGET_DIR [DRAFT_DIR STEPS].

Runs under an interpreter of its own, offline, eager, in float32 on one thread. It says
{"ready": true} on stdout when the model is loaded, and then answers each line of JSON on stdin
({"cases": [{"prompt": ids, "tokens": n}, ...]}) with one on stdout ({"ids": [[...], ...],
"seconds": s}): all cases of a line run together.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

MOST_TOGETHER = 8


def main() -> None:
    """Serve lines until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM and its workers print to stdout
    os.environ |= {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }  # fmt: skip
    target, *drafted = sys.argv[1:]
    model = load(target, drafted)
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(complete(model, json.loads(line)["cases"])) + "\n")
        answers.flush()


def load(target: str, drafted: list[str]) -> Any:
    """The model, with EAGLE-3 where a draft and a number of steps are given."""
    from vllm import LLM

    more: dict[str, Any] = {}
    if drafted:
        folder, steps = drafted
        more["speculative_config"] = {
            "method": "eagle3", "model": folder, "num_speculative_tokens": int(steps)
        }  # fmt: skip
    return LLM(
        target, dtype="float32", enforce_eager=True, max_model_len=1024,
        max_num_seqs=MOST_TOGETHER, enable_prefix_caching=False, disable_log_stats=True, **more,
    )  # fmt: skip


def complete(model: Any, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """All cases together; wall time from handing them over to the last token."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": case["prompt"]} for case in cases]
    asked = [
        SamplingParams(
            temperature=0.0, max_tokens=case["tokens"], ignore_eos=True, detokenize=False
        )
        for case in cases
    ]
    begun = time.perf_counter_ns()
    found = model.generate(prompts, asked, use_tqdm=False)
    seconds = (time.perf_counter_ns() - begun) / 1e9
    return {"ids": [list(one.outputs[0].token_ids) for one in found], "seconds": seconds}


if __name__ == "__main__":
    main()

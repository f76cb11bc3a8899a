"""What to do about each caveat: one sentence per code that specbench itself raises."""

from __future__ import annotations

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "too_few_requests": "ask more prompts (--requests)",
    "too_few_steps": "ask more prompts, or let them run longer (--max-tokens)",
    "weak_evidence": "let the server report its counts per request (SGLang: "
    "return_spec_tokens_details; vLLM: --per-request-spec-decode-metrics)",
    "failed_requests": "see the error, and run again",
    "truncated": "raise the server's context or its time limit",
    "looping": "use prompts that the model can end, with its chat template",
    "eos_ignored": "measure acceptance without ignore_eos",
    "schedule_lag": "lower --request-rate, or give the client a core of its own",
    "cold_start": "raise --warmup",
    "no_baseline": "put 0 into --num-steps, or measure the server without speculation",
    "unpaired": "look for failed or cut requests in the arm that lacks partners",
    "few_blocks": "measure 5 --blocks or more; with fewer, hold it against a --noise-floor",
    "no_difference": "ask more prompts, or take it that there is none that matters",
    "incomparable_baseline": "measure the baseline with the same server, batch and prompts",
    "decomposition_disagrees": "look for time outside verify steps; close the loop",
    "merged_deliveries": "have the server stream every step (SGLang: --stream-interval 1)",
    "identity_broken": "see which count is off before using any of them",
    "lossy_thresholds": "set both thresholds to 1 where outputs must be the target's own",
    "lossy": "look at the first difference; check thresholds, dtype and the verifier",
    "synthetic_prompts": "measure acceptance on real prompts; random ones do for prefill time",
    "template_missing": "send messages, so that the chat template is applied",
    "length_capped": "raise --max-tokens until outputs end by themselves",
    "prefix_cache": "switch the prefix cache off, or use prompts that share no beginning",
    "synthetic_acceptance": "unset the server's simulated acceptance",
    "warmup_in_window": "measure after the warm-up",
    "cold_graphs": "raise --warmup so that every batch size has run once",
    "other_traffic": "measure on a server that no one else uses",
    "machine_drift": "stop other work, and use more, shorter --blocks, which share what is left",
    "step_time_varied": "lock clocks and stop other work before quoting tok/s",
    "within_noise_floor": "ask more prompts before trusting the difference",
    "noise_floor_biased": "stop other work on the machine, and use more --blocks",
    "gpu_few_samples": "measure longer blocks or lower --gpu-interval",
    "gpu_energy_partial": "run again without disturbing the sampler",
    "gpu_energy_from_power": "compare energies of this GPU model with each other only",
    "gpu_throttled": "cool the GPU or cap its power, then measure again",
    "gpu_clocks_vary": "lock the clock (nvidia-smi -lgc)",
    "client_saturated": "compare with `specbench selftest`; fewer requests in flight, or uvloop",
    "verification_unused": "sweep a temperature above 0, or leave --verification out",
    "server_settings": "check the server's settings yourself",
}


def advice(code: str) -> str:
    """What to do, or nothing for a code from elsewhere."""
    return ADVICE.get(code, "")

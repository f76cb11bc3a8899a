"""What to do about each caveat: one sentence per code that specbench itself raises.

docs/validity.md repeats them beside what each code means; a test holds the two together, and both
against every code that is raised anywhere in the package.
"""

from __future__ import annotations

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "too_few_requests": "ask more prompts (--requests)",
    "too_few_steps": "ask more prompts, or let them run longer (--max-tokens)",
    "weak_evidence": "vLLM: start it with --per-request-spec-decode-metrics summary; SGLang: "
    "--backend sglang, or a version whose OpenAI routes answer return_spec_tokens_details; for "
    "TPOT, a server that counts tokens as it streams",
    "failed_requests": "see the error, and run again",
    "truncated": "raise --max-len, or the context of an outside server, or lower --max-tokens",
    "looping": "use prompts that the model can end, with its chat template",
    "eos_ignored": "measure acceptance without ignore_eos",
    "schedule_lag": "lower --request-rate, or give the client a core of its own",
    "cold_start": "raise --warmup",
    "no_baseline": "an outside server: give --baseline-server, the same one launched without "
    "speculation; a sweep that was interrupted: go on with --resume",
    "baseline_speculates": "point --baseline-server to one that was launched without speculation",
    "unpaired": "look for failed or cut requests in the arm that lacks partners",
    "few_blocks": "measure 5 --blocks or more; with fewer, hold it against a --noise-floor",
    "no_difference": "ask more prompts, or take it that there is none that matters",
    "incomparable_baseline": "measure the baseline with the same server, batch and prompts",
    "decomposition_disagrees": "look for time outside verify steps, at batch size 1 first, where "
    "no other request's prefill is in it",
    "merged_deliveries": "have the server stream every step (SGLang: --stream-interval 1)",
    "identity_broken": "see which count is off before using any of them",
    "lossy_thresholds": "set both thresholds to 1 where outputs must be the target's own",
    "lossy": "look at the first difference; check thresholds, dtype and the verifier",
    "synthetic_prompts": "measure acceptance on real prompts; random ones do for prefill time",
    "template_missing": "use a workload that goes through the chat template (text: for raw:), and "
    "--backend openai for a server",
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
    "goodput_unknown": "leave tpot out of --slo, or use a server that reports completion_tokens",
    "gpu_not_sampled": "see the reason; nvidia-smi must answer, and CUDA_VISIBLE_DEVICES name what "
    "the engine uses",
    "gpu_by_index": "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID",
    "gpu_assumed": "start specbench with the server's CUDA_VISIBLE_DEVICES, and keep others off "
    "its GPUs",
    "gpu_shared": "measure energy on a whole GPU, with MIG off",
    "gpu_lost": "see the kernel's log for the GPU's error, then run again for what came after",
    "gpu_energy_reset": "run again, and load no driver meanwhile",
    "gpu_counter_lost": "see which counter, and run again; figures from before it stand",
    "gpu_samples_missing": "nothing unless gpu_energy_partial is raised too; then raise "
    "--gpu-interval",
    "gpu_few_samples": "measure longer blocks or lower --gpu-interval",
    "gpu_energy_partial": "run again without disturbing the sampler",
    "gpu_energy_from_power": "compare energies of this GPU model with each other only",
    "gpu_throttled": "cool the GPU or cap its power, then measure again",
    "gpu_clocks_vary": "lock the clock (nvidia-smi -lgc)",
    "client_saturated": "compare with `specbench selftest`; fewer requests in flight, or a core of "
    "its own for the client",
    "verification_unused": "sweep a temperature above 0, or leave --verification out",
    "server_settings": "check the server's settings yourself",
    "capture_ids": "hold the layers against the draft's training; `specbench doctor` measures them",
    "capture_default": "hold the layers against the draft's training; `specbench doctor` measures "
    "them",
    "capture_unread": "repair the ids in the draft's config, or write it again with `specbench "
    "convert`",
    "ids_unused": "take the ids out, or set use_aux_hidden_state to what the draft was trained "
    "with",
    "d2t_direct": "write offsets with `specbench convert --d2t direct` before it is served",
    "draft_vocab_default": "write draft_vocab_size into the draft's config.json",
    "config_default": "write the key into config.json, with the value that the model was trained "
    "with",
    "fc_bias": "set bias to false, or add the fc.bias that the draft was trained with",
    "upper_norm": "leave the norm that the draft was trained with in the file alone",
    "norm_output_ambiguous": "where acceptance falls after the first position, set norm_output to "
    "false and measure again",
    "draft_window": "keep prompt and output within the window (--max-len)",
    "context_limit": "keep prompt and output within the limit (--max-len)",
    "mrope": "nothing for text; pictures are not measured",
    "not_served": "nothing, unless what is named there is what you want to measure",
}


def advice(code: str) -> str:
    """What to do, or nothing for a code from elsewhere."""
    return ADVICE.get(code, "")

"""Every Prometheus series that specbench exposes, once: name, type, help, labels, buckets.

Code, dashboards, docs and tests read this list. Raw counters only: any ratio can be recomputed
from them over any window, which a gauge that a scraper samples can't offer (definitions of
accept length differ, and the right one is a quotient of increases). Labels are bounded
(semantics.md 16): ``arm`` is baseline or spec, ``point`` a short id of one arm of a sweep, what
it stands for is in ``specbench_point_info``; identity of the run is in ``specbench_run_info``.
Names follow Prometheus' conventions: base units, counters end in ``_total``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "specbench_"
MOST_POINTS = 500
MOST_POSITIONS = 32


class Kind(enum.StrEnum):
    """Prometheus' metric types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series. ``name`` is what PromQL sees (a histogram adds _bucket, _sum and _count)."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


ARM = ("arm", "point")
_STEP = (
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2,
    0.5, 1.0,
)  # fmt: skip
_TTFT = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ACCEPTED = tuple(float(i) for i in range(17))


def _counter(name: str, about: str, *labels: str) -> Series:
    return Series(name=f"{PREFIX}{name}_total", kind=Kind.COUNTER, help=about, labels=labels)


def _gauge(name: str, about: str, *labels: str) -> Series:
    return Series(name=f"{PREFIX}{name}", kind=Kind.GAUGE, help=about, labels=labels)


def _histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Series:
    return Series(
        name=f"{PREFIX}{name}", kind=Kind.HISTOGRAM, help=about, labels=labels, buckets=buckets
    )


VERIFY_STEPS = _counter("verify_steps", "Verify steps (one request's part of a forward).", *ARM)
DRAFTED = _counter("drafted_tokens", "Draft nodes sent to verification, root not counted.", *ARM)
DRAFTED_AT = _counter(
    "drafted_positions", "Verify steps that drafted at least to this position.", *ARM, "position"
)
ACCEPTED_AT = _counter(
    "accepted_tokens", "Drafts accepted at this position, before trimming.", *ARM, "position"
)
EMITTED = _counter("emitted_tokens", "Tokens that verify steps gave to users.", *ARM)
OUTPUT = _counter("output_tokens", "Tokens given to users, those of prefill included.", *ARM)
PROMPT = _counter("prompt_tokens", "Prompt tokens of the requests that ended.", *ARM)
REQUESTS = _counter("requests", "Requests that ended, by outcome.", *ARM, "outcome")
LOOPING = _counter("looping_outputs", "Ended outputs that repeat themselves.", *ARM)

STEP_SECONDS = _histogram("step_seconds", "Wall time of a batch step.", _STEP, *ARM)
PART_SECONDS = _histogram(
    "step_part_seconds", "Wall time of a part of a batch step.", _STEP, *ARM, "part"
)
TTFT_SECONDS = _histogram("ttft_seconds", "Send to first delivery.", _TTFT, *ARM)
TPOT_SECONDS = _histogram(
    "tpot_seconds", "Time per output token after the first delivery, per request.", _STEP, *ARM
)
GAP_SECONDS = _histogram("chunk_gap_seconds", "Time between deliveries.", _STEP, *ARM)
ACCEPTED = _histogram("accepted_per_step", "Accepted drafts of a verify step.", _ACCEPTED, *ARM)

RUNNING = _gauge("requests_running", "Requests that the engine runs now.")
QUEUED = _gauge("requests_queued", "Requests that wait for a place.")
KV_USED = _gauge("kv_slots_used", "KV slots in use.")
KV_SLOTS = _gauge("kv_slots", "KV slots in all.")
GRAPH_BUCKETS = _gauge("graph_buckets", "Captured graphs, or their eager stand-ins.")
BLOCKS = _gauge("sweep_blocks", "Blocks of the sweep in all.")
BLOCKS_DONE = _gauge("sweep_blocks_saved", "Blocks that are saved.")

GPU_UTILISATION = _gauge("gpu_utilization_ratio", "Share of time with a kernel running.", "gpu")
GPU_MEMORY = _gauge("gpu_memory_used_bytes", "Device memory in use.", "gpu")
GPU_MEMORY_TOTAL = _gauge("gpu_memory_bytes", "Device memory in all.", "gpu")
GPU_POWER = _gauge("gpu_power_watts", "Power draw.", "gpu")
GPU_CLOCK = _gauge("gpu_clock_hertz", "Clock by domain (sm, memory).", "gpu", "domain")
GPU_TEMPERATURE = _gauge("gpu_temperature_celsius", "Core temperature.", "gpu")
GPU_THROTTLED = _gauge("gpu_throttled", "1 while this reason slows the clocks.", "gpu", "reason")
GPU_ENERGY = _counter("gpu_energy_joules", "Energy since the sampler began.", "gpu")
GPU_LOST = _counter("gpu_sample_errors", "Samples that failed.", "gpu")

POINT_INFO = Series(
    name=f"{PREFIX}point_info",
    kind=Kind.INFO,
    help="What a point is.",
    labels=(
        "arm", "point", "num_steps", "topk", "num_draft_tokens", "batch_size", "temperature",
        "workload",
    ),
)  # fmt: skip
RUN_INFO = Series(
    name=f"{PREFIX}run_info",
    kind=Kind.INFO,
    help="What runs here.",
    labels=("run_id", "version", "backend", "target", "draft"),
)

CATALOGUE: Mapping[str, Series] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Series)
}

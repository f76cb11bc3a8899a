"""The rows of GPU panels: what the devices do, and what a token costs."""

from __future__ import annotations

from specbench.collectors import catalogue as cat
from specbench.dashboards import promql as q
from specbench.dashboards.board import Row
from specbench.dashboards.panels import Json, Query, stat, timeseries
from specbench.dashboards.promql import Scope, select

HERE = 'instance=~"$instance"'
GPU = "{{instance}} GPU {{gpu}}"


def gpu_rows(window: Scope) -> tuple[Row, ...]:
    """Use, power, heat, clocks, memory and energy; energy per token over ``window``."""
    first = [(make(), 6) for make in (_utilisation, _power, _heat, _clock)]
    second = [(_memory(), 6), (_throttled(), 6), (_joules(window), 8), (_lost(), 4)]
    return Row(heading="GPU", panels=first), Row(panels=second)


def _gauge(title: str, about: str, expr: str, unit: str, legend: str = GPU) -> Json:
    return timeseries(title, about, [Query(expr=expr, legend=legend)], unit=unit)


def _utilisation() -> Json:
    return _gauge(
        "GPU utilisation",
        "Share of time with a kernel running, which is not how busy the kernel keeps the device.",
        select(cat.GPU_UTILISATION, HERE),
        "percentunit",
    )


def _power() -> Json:
    return _gauge("GPU power", "Power draw.", select(cat.GPU_POWER, HERE), "watt")


def _heat() -> Json:
    return _gauge("GPU temperature", "Core.", select(cat.GPU_TEMPERATURE, HERE), "celsius")


def _clock() -> Json:
    return _gauge(
        "GPU clocks",
        "By domain. A clock that falls under load is a throttled device.",
        select(cat.GPU_CLOCK, HERE),
        "hertz",
        f"{GPU} {{{{domain}}}}",
    )


def _memory() -> Json:
    used, total = select(cat.GPU_MEMORY, HERE), select(cat.GPU_MEMORY_TOTAL, HERE)
    return timeseries(
        "GPU memory",
        "In use, and all there is.",
        [Query(expr=used, legend=f"{GPU} used"), Query(expr=total, legend=f"{GPU} all")],
        unit="bytes",
    )


def _throttled() -> Json:
    return _gauge(
        "GPU throttled",
        "1 while this reason slows the clocks: figures of that time are not comparable.",
        f"{select(cat.GPU_THROTTLED, HERE)}",
        "none",
        f"{GPU} {{{{reason}}}}",
    )


def _joules(window: Scope) -> Json:
    return timeseries(
        "Energy per token",
        "Energy of all devices ÷ emitted tokens, and ÷ accepted drafts, of all points that ran "
        "within the window.",
        [
            Query(expr=q.joules_per(window, cat.EMITTED), legend="{{instance}} per emitted token"),
            Query(
                expr=q.joules_per(window, cat.ACCEPTED_AT),
                legend="{{instance}} per accepted draft",
            ),
        ],
        unit="joule",
    )


def _lost() -> Json:
    return stat(
        "GPU samples that failed",
        "Since the sampler began. Above 0, the GPU panels have holes.",
        [Query(expr=select(cat.GPU_LOST, HERE), legend=GPU, instant=True)],
        unit="none",
        steps=(("green", None), ("orange", 1)),
        named=True,
    )

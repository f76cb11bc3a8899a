"""The GPU series of the catalogue, from the sampler's latest samples.

Collected when somebody scrapes: nothing is set in between. A GPU that was lost has no gauges any
more, its counters stand still; what a GPU cannot tell has no series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from specbench.collectors import catalogue
from specbench.collectors.catalogue import Kind, Series
from specbench.collectors.gpu import GpuSampler
from specbench.gpu_samples import CHOSEN, REASONS, GpuSample

Family = GaugeMetricFamily | CounterMetricFamily
Values = dict[Series, list[tuple[tuple[str, ...], float]]]

_SERIES = (
    catalogue.GPU_UTILISATION,
    catalogue.GPU_MEMORY,
    catalogue.GPU_MEMORY_TOTAL,
    catalogue.GPU_POWER,
    catalogue.GPU_CLOCK,
    catalogue.GPU_TEMPERATURE,
    catalogue.GPU_THROTTLED,
    catalogue.GPU_ENERGY,
    catalogue.GPU_LOST,
)
_SLOWING = tuple(name for name in REASONS.values() if name not in CHOSEN)


class GpuSeries(Collector):
    """Exposes ``sampler`` in the registry that it is registered in."""

    def __init__(self, sampler: GpuSampler) -> None:
        self._sampler = sampler

    def describe(self) -> Iterable[Family]:
        """The families without samples, by which a registry refuses a second owner of a name."""
        return [_family(series) for series in _SERIES]

    def collect(self) -> Iterator[Family]:
        """The families as they are now; one that nothing is known of is left out."""
        values: Values = {series: [] for series in _SERIES}
        for sample in self._sampler.latest.values():
            for series, labels, value in _values(sample):
                values[series].append(((sample.gpu, *labels), value))
        values[catalogue.GPU_ENERGY] = [
            ((gpu,), joules) for gpu, joules in self._sampler.energy_j.items()
        ]
        values[catalogue.GPU_LOST] = [
            ((gpu,), float(self._sampler.errors[gpu])) for gpu in self._sampler.labels
        ]
        for series, rows in values.items():
            family = _family(series)
            for labels, value in rows:
                family.add_metric(labels, value)
            if rows:
                yield family


def _family(series: Series) -> Family:
    kind = CounterMetricFamily if series.kind is Kind.COUNTER else GaugeMetricFamily
    return kind(series.name, series.help, labels=series.labels)


def _values(sample: GpuSample) -> Iterator[tuple[Series, tuple[str, ...], float]]:
    """What ``sample`` knows, with the labels that follow ``gpu``."""
    known: tuple[tuple[Series, tuple[str, ...], float | None], ...] = (
        (catalogue.GPU_UTILISATION, (), sample.utilisation),
        (catalogue.GPU_MEMORY, (), sample.memory_used_bytes),
        (catalogue.GPU_MEMORY_TOTAL, (), sample.memory_bytes),
        (catalogue.GPU_POWER, (), sample.power_w),
        (catalogue.GPU_CLOCK, ("sm",), sample.sm_hz),
        (catalogue.GPU_CLOCK, ("memory",), sample.memory_hz),
        (catalogue.GPU_TEMPERATURE, (), sample.temperature_c),
    )
    for series, labels, value in known:
        if value is not None:
            yield series, labels, float(value)
    if sample.reasons is not None:
        for reason in dict.fromkeys((*_SLOWING, *sample.slowed_by)):
            yield catalogue.GPU_THROTTLED, (reason,), float(reason in sample.reasons)

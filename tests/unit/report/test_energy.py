import dataclasses

from specbench.metrics.energy import GpuUse
from specbench.metrics.figures import ALL
from specbench.metrics.summary import Summary
from specbench.report.document import Table
from specbench.report.energy import energy


def use(j_per_token: float | None) -> GpuUse:
    return GpuUse(
        util_pct=55.4, power_w=300.25, joules=10.0, j_per_token=j_per_token, j_per_accepted=0.5
    )


def test_without_gpus_the_section_is_left_out(summary: Summary) -> None:
    assert list(energy(summary)) == []


def test_energy_is_held_against_plain_decoding(summary: Summary) -> None:
    best = summary.headline
    plain = summary.baseline_of(best.cell)
    assert plain is not None
    assert best.arm is not None
    gpu = {(plain.key, ALL): use(0.3), (best.arm.key, ALL): use(0.2)}
    *_, table = energy(dataclasses.replace(summary, gpu=gpu))
    assert isinstance(table, Table)
    assert [row[2:] for row in table.rows] == [
        ("55", "300.2", "0.300", "0.500", "–"),
        ("55", "300.2", "0.200", "0.500", "1.50x"),
    ]
    gpu[best.arm.key, ALL] = use(None)
    *_, partial = energy(dataclasses.replace(summary, gpu=gpu))
    assert isinstance(partial, Table)
    assert partial.rows[1][4:] == ("–", "0.500", "–")

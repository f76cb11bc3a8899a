"""Which GPUs a process on CUDA sees: ``CUDA_VISIBLE_DEVICES``, read as the driver reads it."""

from __future__ import annotations

from collections.abc import Sequence

from specbench.collectors.nvml import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"


def visible(gpus: Sequence[Gpu], value: str | None) -> tuple[Gpu, ...]:
    """The GPUs and MIG instances that ``value`` names, in CUDA's numbering.

    An entry is an index, the beginning of a ``GPU-`` UUID, or that of a ``MIG-`` UUID; whatever
    follows an entry that names nothing is not seen, and an entry that comes twice hides
    everything (CUDA C++ Programming Guide, CUDA environment variables). A GPU in MIG mode that
    is named as a whole stands for its instances.

    Args:
        gpus: all of them, in NVML's order.
        value: of the variable; None when it is not set.
    """
    if value is None:
        return tuple(each for gpu in gpus for each in _parts(gpu))
    found: list[Gpu] = []
    for entry in value.split(","):
        named = _named(gpus, entry.strip())
        if not named:
            break
        if any(gpu in found for gpu in named):
            return ()
        found.extend(named)
    return tuple(found)


def _named(gpus: Sequence[Gpu], entry: str) -> tuple[Gpu, ...]:
    if entry.isdecimal():
        return _parts(gpus[int(entry)]) if int(entry) < len(gpus) else ()
    if entry.startswith("GPU-"):
        fits = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
        return _parts(fits[0]) if len(fits) == 1 else ()
    if entry.startswith("MIG-"):
        parts = [part for gpu in gpus for part in gpu.instances if part.uuid.startswith(entry)]
        return (parts[0],) if len(parts) == 1 else ()
    return ()


def _parts(gpu: Gpu) -> tuple[Gpu, ...]:
    return gpu.instances if gpu.mig else (gpu,)


def order_is_a_guess(gpus: Sequence[Gpu], value: str | None, order: str | None) -> bool:
    """True when CUDA may number the GPUs otherwise than NVML does.

    Unless CUDA_DEVICE_ORDER is PCI_BUS_ID, CUDA puts the fastest first: that matters where
    models differ and GPUs are named by index.
    """
    by_uuid = value is not None and value.startswith(("GPU-", "MIG-"))
    return not by_uuid and order != "PCI_BUS_ID" and len({gpu.name for gpu in gpus}) > 1

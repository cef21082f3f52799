"""What NVML adds to the driver's list of GPUs: the card under a MIG slice, releases, power."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """A GPU as NVML knows it.

    `uuid` with its prefix, GPU- or MIG-; `card` the physical GPU's; `partition` the MIG slices as
    in a profile's name, "3g" or "1c.3g", and "" for a whole GPU; `power_limit` in watts.
    """

    uuid: str
    card: str
    partition: str = ""
    power_limit: float | None = None


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """GPUs by the UUID without prefix, and the driver's release; or why NVML tells nothing."""

    driver: str = ""
    gpus: Mapping[str, NvmlGpu] = field(default_factory=dict)
    reason: str | None = None


def read_nvml(uuids: Iterable[str], nvml: Any = None) -> NvmlReading:
    """Ask about the GPUs with these UUIDs (without prefix).

    GPUs are matched by UUID: NVML numbers all cards in the order of the bus, CUDA the visible
    ones in its own. `nvml` stands in for the module `pynvml`. Nothing here is needed to use or
    to identify a GPU, so that whatever fails costs those facts only.
    """
    try:
        with session(nvml) as module:
            driver = _text(module.nvmlSystemGetDriverVersion())
            found = {each: _gpu(module, each) for each in uuids}
    except ImportError:
        return NvmlReading(reason="nvidia-ml-py is not installed")
    except Exception as error:  # pynvml makes a class of its own for each status
        return NvmlReading(reason=f"NVML cannot be used: {error}")
    return NvmlReading(driver, {each: gpu for each, gpu in found.items() if gpu is not None})


@contextmanager
def session(nvml: Any = None) -> Iterator[Any]:
    """The module `pynvml`, initialised; its own count lets sessions nest. Raises ImportError."""
    module = import_module("pynvml") if nvml is None else nvml
    module.nvmlInit()
    try:
        yield module
    finally:
        module.nvmlShutdown()


def handle(module: Any, uuid: str) -> Any:
    """NVML's handle of the GPU or MIG slice with this UUID, given with or without prefix."""
    if uuid.startswith(("GPU-", "MIG-")):
        return module.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return module.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except module.NVMLError:
        return module.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def partition_in(name: str) -> str:
    """The slices in a name that the driver gives, "NVIDIA H200 MIG 3g.71gb"; "" for a whole GPU.

    Vendors and images rename cards, but the driver itself appends this to whatever the name is.
    """
    found = re.search(r"\bMIG ((?:\d+c\.)?\d+g)\.", name)
    return found[1] if found else ""


def _gpu(module: Any, uuid: str) -> NvmlGpu | None:
    try:
        device = handle(module, uuid)
        own = _text(module.nvmlDeviceGetUUID(device))
        card, partition = device, ""
        if own.startswith("MIG-"):
            card = module.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
            partition = _slices(module.nvmlDeviceGetAttributes_v2(device))
        return NvmlGpu(own, _text(module.nvmlDeviceGetUUID(card)), partition, _power(module, card))
    except module.NVMLError:
        return None


def _slices(attributes: Any) -> str:
    """A slice whose compute is divided further carries both numbers, as in its profile's name."""
    memory, compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    return f"{memory}g" if compute == memory else f"{compute}c.{memory}g"


def _power(module: Any, card: Any) -> float | None:
    try:
        return float(module.nvmlDeviceGetPowerManagementLimit(card)) / 1000.0
    except module.NVMLError:
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

"""The GPUs of this machine, each with what keeps it from being used."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.device.cuda import CudaDevice
    from autotune.device.driver import DriverGpu, DriverReading
    from autotune.device.nvml import NvmlReading
    from autotune.device.toolkit import Cupy


@dataclass(frozen=True, slots=True)
class Gpus:
    """Every GPU the driver lists, in CUDA's order; or why there is none."""

    devices: tuple[CudaDevice, ...] = ()
    reason: str | None = None


@functools.cache
def local_gpus() -> Gpus:
    """This machine's GPUs as this process sees them first; asked once."""
    from autotune.device.driver import read_driver

    driver = read_driver()
    if not driver.gpus:
        return Gpus(reason=driver.reason)
    from autotune.device.nvml import read_nvml
    from autotune.device.toolkit import find_cupy

    return gpus_of(driver, read_nvml([gpu.uuid for gpu in driver.gpus]), find_cupy())


def gpus_of(driver: DriverReading, nvml: NvmlReading, cupy: Cupy | None) -> Gpus:
    """The devices for what was read."""
    from autotune.device.cuda import CudaDevice
    from autotune.device.toolkit import release

    versions = {"driver": nvml.driver or None, "cuda": release(driver.cuda)}
    devices = tuple(
        CudaDevice.of(
            gpu,
            nvml.gpus.get(gpu.uuid),
            versions=versions,
            unusable=_unusable(gpu, driver, nvml, cupy),
        )
        for gpu in driver.gpus
    )
    return Gpus(devices, driver.reason)


def _unusable(
    gpu: DriverGpu, driver: DriverReading, nvml: NvmlReading, cupy: Cupy | None
) -> str | None:
    from autotune.device.toolkit import unfit

    if gpu.prohibited:
        return "its compute mode is Prohibited: nvidia-smi -c DEFAULT"
    return unfit(nvml.driver, driver.cuda, gpu.limits["compute"], cupy)

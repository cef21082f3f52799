"""A machine with two equal A100."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotune.device.cuda import CudaDevice
from autotune.device.driver import DriverGpu

A100 = DriverGpu(
    index=0,
    name="NVIDIA A100-SXM4-40GB",
    uuid="00000000-0000-0000-0000-000000000001",
    bus_id="0000:07:00.0",
    bus_width=5120,
    ecc=True,
    prohibited=False,
    limits={
        "compute": 80,
        "sms": 108,
        "shared_per_block": 166_912,
        "shared_per_sm": 167_936,
        "registers_per_sm": 65_536,
        "max_threads_per_block": 1024,
        "max_threads_per_sm": 2048,
        "warp": 32,
        "device_memory": 42_297_786_368,
        "l2_bytes": 41_943_040,
    },
)
Have = Callable[..., CudaDevice]


def two_cards(unusable: str | None = None) -> tuple[CudaDevice, ...]:
    """Both of them; `unusable` says why nothing can run there."""
    versions = {"driver": "580.65.06", "cuda": "13.0"}
    return tuple(
        CudaDevice.of(
            replace(A100, index=i, uuid=f"{i:032x}"), versions=versions, unusable=unusable
        )
        for i in range(2)
    )

"""An NVIDIA GPU as a device: its identity, and what a kernel may ask of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.device.driver import DriverGpu
from autotune.device.nvml import NvmlGpu, partition_in
from autotune.device.toolkit import capability

_GIB = 1 << 30
_SIZES = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 18, 20, 24, 32, 35, 40, 48),
    *(64, 71, 80, 94, 96, 128, 141, 144, 180, 192, 256, 288),
)
"""Sizes of memory that cards and MIG slices are sold with."""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A GPU, or the MIG slice of one, that this process can see.

    `identity` is made of what kernels meet: architecture, SM count, memory class, partition, and
    a digest that adds L2 cache, memory bus and the limits of a block. Two equal cards share it;
    `index` (CUDA's number in this process) and `uuid` tell which one is used. The label, clocks,
    power limit, ECC and driver are no part of it. `family` is the architecture with the SM count
    to the nearest power of two: kernels are the same there, and the waves in which tiles run
    differ by less than half; memory only bounds what fits.
    """

    identity: str
    family: str
    label: str
    index: int
    uuid: str
    card: str
    bus_id: str
    unusable: str | None = None
    limits: Mapping[str, int] = field(default_factory=dict, compare=False)
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)
    kind: str = "cuda"

    @classmethod
    def of(
        cls,
        gpu: DriverGpu,
        nvml: NvmlGpu | None = None,
        *,
        versions: Mapping[str, str | None] | None = None,
        unusable: str | None = None,
    ) -> CudaDevice:
        """The device for what driver and NVML tell; `versions` of driver and CUDA are facts."""
        limits = gpu.limits
        partition = partition_in(gpu.name) or (nvml.partition if nvml else "")
        architecture, sms = f"sm{limits['compute']}", limits["sms"]
        memory = memory_class(limits["device_memory"])
        parts = [architecture, f"{sms}sm", f"{memory}gb"]
        parts += [f"mig{partition}"] if partition else []
        told = {name: value for name, value in limits.items() if name != "device_memory"}
        structure = json.dumps([parts, sorted(told.items()), gpu.bus_width])
        digest = hashlib.sha256(structure.encode()).hexdigest()[:8]
        prefix = "MIG" if partition else "GPU"
        uuid = nvml.uuid if nvml else f"{prefix}-{gpu.uuid}"
        return cls(
            identity="-".join(["cuda", *parts, digest]),
            family=f"cuda-{architecture}-around{1 << round(math.log2(max(sms, 1)))}sm",
            label=" ".join(gpu.name.split()),
            index=gpu.index,
            uuid=uuid,
            card=nvml.card if nvml else uuid,
            bus_id=gpu.bus_id,
            unusable=unusable,
            limits=dict(limits),
            facts=_facts(gpu, nvml, partition, memory, versions or {}),
        )

    @property
    def address(self) -> str:
        """CUDA's number for it in this process: `cuda:1`."""
        return f"{self.kind}:{self.index}"

    @property
    def lock_name(self) -> str:
        """The physical card: its slices share clocks and power."""
        return f"{self.kind}-{self.card}"

    @property
    def last_level_cache_bytes(self) -> int:
        """Bytes of L2."""
        return self.limits.get("l2_bytes", 0)

    def thread_counts(self) -> tuple[int, ...]:
        """One: a single host thread launches."""
        return (1,)

    def placements(self) -> tuple[str, ...]:
        """That thread is not pinned."""
        return ("free",)


def memory_class(visible: int) -> int:
    """The GB a card with so many bytes visible is sold as.

    Drivers keep up to 2% for themselves, more or less of it with each release, and ECC takes
    another 6% of GDDR memory: 150,117,679,104 bytes belong to a card of 141 GB. Multiples of 32
    beyond the largest size known.
    """
    wanted = visible / _GIB
    fits = [size for size in _SIZES if size >= wanted]
    return fits[0] if fits else 32 * math.ceil(wanted / 32)


def _facts(
    gpu: DriverGpu,
    nvml: NvmlGpu | None,
    partition: str,
    memory: int,
    versions: Mapping[str, str | None],
) -> dict[str, Any]:
    """Plain values in the order to show them; nothing that two equal cards differ in by nature."""
    limits = dict(gpu.limits)
    return {
        "compute_capability": capability(limits.pop("compute")),
        "sms": limits.pop("sms"),
        "memory_bytes": limits.pop("device_memory"),
        "memory_class_gb": memory,
        "bus_width_bits": gpu.bus_width,
        **limits,
        "partition": f"MIG {partition}" if partition else None,
        "ecc": gpu.ecc,
        "power_limit_watts": nvml.power_limit if nvml else None,
        **versions,
    }

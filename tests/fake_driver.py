"""A CUDA driver and an NVML that answer from a list of cards."""

# ruff: noqa: N802, N815  (the names are libcuda's and NVML's)

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.device.driver import read_driver
from autotune.device.gpus import Gpus, gpus_of
from autotune.device.nvml import read_nvml
from autotune.device.toolkit import Cupy

MIB = 1 << 20


@dataclass(frozen=True)
class Card:
    """A card, or the MIG slice of one; sizes in bytes, as drivers report them."""

    name: str
    compute: int
    sms: int
    memory: int
    l2: int
    shared: int
    shared_sm: int
    bus: int
    threads_sm: int = 2048
    number: int = 0
    mig: tuple[int, int] | None = None
    mode: int = 0
    ecc: int = 1

    @property
    def raw(self) -> uuid.UUID:
        """What the driver tells; a card and its slices differ."""
        return uuid.UUID(int=self.number + 1 + (1 << 64 if self.mig else 0))

    @property
    def uuid(self) -> str:
        """As NVML writes it."""
        return f"{'MIG' if self.mig else 'GPU'}-{self.raw}"

    @property
    def card(self) -> str:
        """The physical card's."""
        return f"GPU-{uuid.UUID(int=self.number + 1)}"

    def attribute(self, number: int) -> int:
        """cuDeviceGetAttribute."""
        known = {1: 1024, 10: 32, 16: self.sms, 20: self.mode, 32: self.ecc, 37: self.bus}
        known |= {38: self.l2, 39: self.threads_sm, 75: self.compute // 10}
        known |= {76: self.compute % 10, 81: self.shared_sm, 82: 65536, 97: self.shared}
        return known[number]


H200 = Card("NVIDIA H200", 90, 132, 143156 * MIB, 60 * MIB, 232448, 233472, 6144)
H200_SLICE = replace(
    H200, name="NVIDIA H200 MIG 3g.71gb", sms=60, memory=71168 * MIB, l2=30 * MIB, mig=(3, 3)
)
H20 = replace(H200, name="NVIDIA H20", sms=78, memory=97280 * MIB)
A100 = Card("NVIDIA A100-SXM4-80GB", 80, 108, 81050 * MIB, 40 * MIB, 166912, 167936, 5120)
A10 = Card("NVIDIA A10", 86, 72, 22500 * MIB, 6 * MIB, 101376, 102400, 384, 1536)
V100 = Card("Tesla V100-SXM2-32GB", 70, 80, 32494 * MIB, 6 * MIB, 98304, 98304, 4096)


@dataclass
class FakeDriver:
    """Stands for libcuda.so.1; `status` is what cuInit returns."""

    cards: Sequence[Card]
    cuda: int = 13000
    status: int = 0
    calls: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> FakeDriver:
        """Loading it."""
        assert name == "libcuda.so.1"
        return self

    def cuInit(self, flags: int) -> int:
        self.calls.append("cuInit")
        return self.status

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = b"something the driver says"
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self.cuda
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self.cards)
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = self.cards[device.value].name.encode()[: size - 1]
        return 0

    def cuDeviceGetPCIBusId(self, bus: Any, size: int, device: Any) -> int:
        bus.value = f"0000:{self.cards[device.value].number:02X}:00.0".encode()[: size - 1]
        return 0

    def cuDeviceGetUuid_v2(self, octets: Any, device: Any) -> int:
        octets.raw = self.cards[device.value].raw.bytes
        return 0

    def cuDeviceTotalMem_v2(self, size: Any, device: Any) -> int:
        size._obj.value = self.cards[device.value].memory
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> int:
        value._obj.value = self.cards[device.value].attribute(number)
        return 0


@dataclass(frozen=True)
class Slices:
    """nvmlDeviceAttributes."""

    gpuInstanceSliceCount: int
    computeInstanceSliceCount: int


@dataclass
class FakeNvml:
    """Stands for the module pynvml; it lists cards by bus, whatever CUDA sees."""

    cards: Sequence[Card]
    driver: str = "580.65.06"
    sessions: int = 0
    power: bool = True

    class NVMLError(Exception):
        """What every call may raise."""

    def nvmlInit(self) -> None:
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return self.driver.encode()

    def nvmlDeviceGetHandleByUUID(self, wanted: str) -> Card:
        for card in self.cards:
            if wanted == card.uuid:
                return card
        raise self.NVMLError(f"Not Found: {wanted}")

    def nvmlDeviceGetUUID(self, card: Card) -> bytes:
        return card.uuid.encode()

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, card: Card) -> Card:
        return replace(card, mig=None)

    def nvmlDeviceGetAttributes_v2(self, card: Card) -> Slices:
        if card.mig is None:
            raise self.NVMLError("Not Supported")
        return Slices(*card.mig)

    def nvmlDeviceGetPowerManagementLimit(self, card: Card) -> int:
        if not self.power:
            raise self.NVMLError("Not Supported")
        return 700_000


CUPY = Cupy("cupy-cuda13x", 13)


def machine(*cards: Card, cuda: int = 13000, cupy: Cupy | None = CUPY) -> Gpus:
    """A machine with these cards, read through driver and NVML."""
    driver = read_driver(FakeDriver(cards, cuda), {})
    nvml = read_nvml([gpu.uuid for gpu in driver.gpus], FakeNvml(cards))
    return gpus_of(driver, nvml, cupy)

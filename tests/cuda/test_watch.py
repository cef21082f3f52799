"""What NVML tells of the card, what spoils a measurement, and what is merely noted."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.cuda.bench import steady
from autotune.cuda.watch import CardState, CardWatch


class NVMLError(Exception):
    """As pynvml's."""

    def __init__(self, value: int) -> None:
        super().__init__(f"status {value}")
        self.value = value


UNINITIALISED, UNSUPPORTED, NOT_FOUND = 1, 3, 6


class FakeNvml:
    """One card; attributes are what it answers, None: not supported."""

    NVMLError = NVMLError

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "sm": 1980,
            "memory": 3201,
            "temperature": 55,
            "power": 402_500,
            "throttle": 0,
            "pids": (os.getpid(),),
            "utilization": NOT_FOUND,
            **answers,
        }
        self.sessions = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.answers.get("broken"):
            raise NVMLError(UNINITIALISED)
        self.sessions += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.sessions -= 1

    def _give(self, name: str) -> Any:
        if self.answers[name] is None:
            raise NVMLError(UNSUPPORTED)
        return self.answers[name]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlDeviceGetClockInfo(self, card: str, which: int) -> int:  # noqa: N802
        return int(self._give("sm" if which == 1 else "memory"))

    def nvmlDeviceGetTemperature(self, card: str, sensor: int) -> int:  # noqa: N802
        return int(self._give("temperature"))

    def nvmlDeviceGetPowerUsage(self, card: str) -> int:  # noqa: N802
        return int(self._give("power"))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: str) -> int:  # noqa: N802
        return int(self._give("throttle"))

    def nvmlDeviceGetComputeRunningProcesses(self, card: str) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=1) for pid in self._give("pids")]

    def nvmlDeviceGetProcessUtilization(self, card: str, since: int) -> list[Any]:  # noqa: N802
        shares = self._give("utilization")
        if isinstance(shares, int):
            raise NVMLError(shares)
        return [SimpleNamespace(pid=pid, smUtil=share, timeStamp=since) for pid, share in shares]


def watched(**answers: Any) -> CardState:
    """The second reading of a card: the first has nothing to compare with."""
    watch = CardWatch("GPU-1", FakeNvml(**answers))
    watch.read()
    return watch.read()


def test_a_quiet_card_is_described_and_spoils_nothing() -> None:
    state = watched()
    assert state.facts() == {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "temperature_c": 55,
        "power_watts": 402.5,
    }
    assert state.spoils() == ()


@pytest.mark.parametrize(
    ("bits", "names", "spoils"),
    [
        (0x1 | 0x2, None, ()),
        (0x4, ["power cap"], ()),
        (0x40, ["hardware thermal slowdown"], ("(hardware thermal slowdown)",)),
        (0x4 | 0x8, ["power cap", "hardware slowdown"], ("(hardware slowdown)",)),
    ],
)
def test_heat_and_brakes_spoil_times_a_power_cap_is_noted(
    bits: int, names: list[str] | None, spoils: tuple[str, ...]
) -> None:
    state = watched(throttle=bits)
    assert state.facts().get("throttle") == names
    assert (
        tuple(each.removeprefix("the card was slowed down ") for each in state.spoils()) == spoils
    )


OWN, OTHER = os.getpid(), 4_000_001


@pytest.mark.parametrize(
    ("pids", "utilization", "spoils"),
    [
        ((OWN,), ((OWN, 99),), ()),
        ((OWN, OTHER), NOT_FOUND, ()),
        ((OWN, OTHER), 0, ()),
        ((OWN, OTHER), ((OWN, 60), (OTHER, 3)), ()),
        ((OWN, OTHER), ((OWN, 60), (OTHER, 35)), ("other processes used 35% of the card",)),
        ((OWN, OTHER), None, ("1 other process is on the card",)),
        ((77,), ((77, 99),), ()),
        ((77, OTHER), ((77, 60), (OTHER, 35)), ("other processes used 35% of the card",)),
    ],
)
def test_only_what_others_do_spoils_times(
    pids: tuple[int, ...], utilization: Any, spoils: tuple[str, ...]
) -> None:
    assert watched(pids=pids, utilization=utilization).spoils() == spoils


def test_what_a_card_does_not_tell_is_left_out() -> None:
    state = watched(power=None, throttle=None, temperature=None, pids=None)
    assert state.facts() == {"sm_clock_mhz": 1980, "memory_clock_mhz": 3201}
    assert state.spoils() == ()


def test_without_nvml_there_is_less_to_say() -> None:
    watch = CardWatch("GPU-1", FakeNvml(broken=True))
    assert watch.read() == CardState()
    assert watch.read().facts() == {}
    watch.close()


def test_nvml_is_let_go_of() -> None:
    nvml = FakeNvml()
    watch = CardWatch("GPU-1", nvml)
    assert nvml.sessions == 1
    watch.close()
    assert nvml.sessions == 0
    assert watch.read() == CardState()


def test_steady_means_that_clock_and_temperature_hold() -> None:
    def states(*pairs: tuple[int | None, int | None]) -> list[CardState]:
        return [CardState(sm_mhz=clock, temperature_c=degrees) for clock, degrees in pairs]

    assert steady(states((None, None)))
    assert steady(states((345, 30), (1980, 50), (1965, 51), (1980, 51)))
    assert not steady(states((345, 30), (1980, 50), (1980, 50)))
    assert not steady(states((1980, 45), (1980, 48), (1980, 51)))

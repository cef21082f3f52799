"""The card while it is measured: clocks, temperature, power, throttling, and who else is on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from autotune.device.nvml import handle, session
from autotune.disturbance import seconds_asleep

FOREIGN_LIMIT = 5
"""Percent of the multiprocessors' time that another process may have had."""

_SM, _MEMORY, _GPU_SENSOR = 1, 2, 0
_NOTHING = (0, 6)  # NVML_SUCCESS without a sample, NVML_ERROR_NOT_FOUND

THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "synchronised boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's reasons (nvmlClocksEventReasons); idle and the clocks a user has set are none."""

SPOILING = 0x8 | 0x20 | 0x40 | 0x80
"""A power cap is part of what a kernel meets in use; heat and brakes are not its doing."""


@dataclass(frozen=True, slots=True)
class CardState:
    """What NVML tells at one moment; None where it does not.

    `others` are the processes with work on the card besides this one, `foreign` the percent of its
    time that they had since the reading before. `asleep` are the seconds for which the machine has
    been suspended so far.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_watts: float | None = None
    throttle: int = 0
    others: int = 0
    foreign: int | None = None
    asleep: float = 0.0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why clocks are lower than they could be."""
        return tuple(name for bit, name in THROTTLE.items() if self.throttle & bit)

    def facts(self) -> dict[str, Any]:
        """What is known, as plain values."""
        found = {
            "sm_clock_mhz": self.sm_mhz,
            "memory_clock_mhz": self.memory_mhz,
            "temperature_c": self.temperature_c,
            "power_watts": self.power_watts,
            "throttle": list(self.reasons) or None,
            "other_processes": self.others or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def spoils(self) -> tuple[str, ...]:
        """What makes times taken meanwhile not to be trusted, in words."""
        found = []
        if self.throttle & SPOILING:
            names = [THROTTLE[bit] for bit in THROTTLE if self.throttle & SPOILING & bit]
            found.append(f"the card was slowed down ({', '.join(names)})")
        if self.foreign is not None and self.foreign > FOREIGN_LIMIT:
            found.append(f"other processes used {self.foreign}% of the card")
        elif self.foreign is None and self.others:
            noun = "process is" if self.others == 1 else "processes are"
            found.append(f"{self.others} other {noun} on the card")
        return tuple(found)


class CardWatch:
    """Reads a card through NVML; where that cannot be used, states are empty.

    `card` is the UUID of the physical card, also of a MIG slice: its parts share clocks and heat.
    `nvml` stands in for the module `pynvml`.
    """

    def __init__(self, card: str, nvml: Any = None) -> None:
        self._stack = ExitStack()
        self._nvml: Any = None
        self._seen = 0
        try:
            module = self._stack.enter_context(session(nvml))
            self._card = handle(module, card)
            self._nvml = module
        except Exception:  # not installed, not permitted, or a card that NVML does not know
            self._stack.close()

    def close(self) -> None:
        """Let go of NVML."""
        self._nvml = None
        self._stack.close()

    def read(self) -> CardState:
        """Everything now."""
        nvml = self._nvml
        if nvml is None:
            return CardState(asleep=seconds_asleep())
        card = self._card
        power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(card))
        others = self._others()
        return CardState(
            sm_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(card, _SM)),
            memory_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(card, _MEMORY)),
            temperature_c=self._ask(lambda: nvml.nvmlDeviceGetTemperature(card, _GPU_SENSOR)),
            power_watts=None if power is None else round(power / 1000.0, 1),
            throttle=self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card)) or 0,
            others=others,
            foreign=self._foreign() if others else 0,
            asleep=seconds_asleep(),
        )

    def _others(self) -> int:
        """Other processes with a context on the card; within a container, where NVML gives
        numbers of another namespace, one of those listed is this one."""
        running = self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._card))
        pids = {process.pid for process in running or ()}
        return max(len(pids) - 1, 0)

    def _foreign(self) -> int | None:
        """The most that another process had since the last look; None where NVML cannot tell."""
        since, self._seen = self._seen, time.time_ns() // 1000
        if not since:
            return None
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._card, since)
        except Exception as error:  # pynvml raises also when there is nothing to tell
            return 0 if getattr(error, "value", None) in _NOTHING else None
        own, recent = os.getpid(), [each for each in samples if each.timeStamp >= since]
        pids = {sample.pid for sample in recent}
        shares = [int(sample.smUtil) for sample in recent if sample.pid != own]
        if own not in pids and shares:
            shares.remove(max(shares))  # by another name, it is the one that is at work
        return max(shares, default=0)

    @staticmethod
    def _ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception:  # not supported by this card or driver
            return None

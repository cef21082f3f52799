"""What Nsight Compute reports, as plain values."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any

from autotune.errors import AutotuneError

WARP = 32

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
REDUCTIONS = "smsp__inst_executed_op_global_red.sum"
ATOMICS = "smsp__inst_executed_op_generic_atom_dot_alu.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
DURATION = "gpu__time_duration.sum"

METRICS = (READ, WRITTEN, REDUCTIONS, ATOMICS, OCCUPANCY, DURATION)
"""Atomics whose result nobody uses compile to reductions (RED): their counter is the one that
moves, and it counts instructions of warps, not of threads."""

_UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3}
_SIZES = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


class ProfileError(AutotuneError):
    """Counters cannot be read: none here, or the program failed."""


class NoCountersError(ProfileError):
    """Counters cannot be read on this machine: no GPU, no Nsight Compute, no permission."""


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """One launch: bytes of device memory, atomics as warp instructions, seconds, a share."""

    kernel: str
    bytes_read: float
    bytes_written: float
    atomic_warp_instructions: float
    occupancy: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The launches of one call, in order."""

    kernels: tuple[KernelCounters, ...]

    @property
    def bytes_read(self) -> float:
        """Bytes read from device memory by all launches."""
        return sum(each.bytes_read for each in self.kernels)

    @property
    def bytes_written(self) -> float:
        """Bytes written to device memory by all launches."""
        return sum(each.bytes_written for each in self.kernels)

    @property
    def atomics(self) -> float:
        """Atomic additions, if every lane of every warp took part."""
        return WARP * sum(each.atomic_warp_instructions for each in self.kernels)

    @property
    def seconds(self) -> float:
        """Device time under the profiler, where caches are flushed before every launch."""
        return sum(each.seconds for each in self.kernels)

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "atomics": self.atomics,
            "kernels": [
                {
                    "kernel": each.kernel,
                    "bytes_read": each.bytes_read,
                    "bytes_written": each.bytes_written,
                    "atomic_warp_instructions": each.atomic_warp_instructions,
                    "occupancy": each.occupancy,
                    "seconds": each.seconds,
                }
                for each in self.kernels
            ],
        }


def read_counters(text: str) -> Profile:
    """The launches in the CSV output of `ncu --csv`, one row for each launch and metric.

    Raises ProfileError when there is none in it.
    """
    start = text.find('"ID"')
    rows = list(csv.DictReader(StringIO(text[start:]))) if start >= 0 else []
    launches: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    for row in rows:
        if row.get("Metric Name") in METRICS:
            names[row["ID"]] = row["Kernel Name"].split("(")[0]
            launches.setdefault(row["ID"], {})[row["Metric Name"]] = _value(row)
    if not launches:
        raise ProfileError("Nsight Compute reported no kernel; the variant launches none.")
    return Profile(tuple(_counters(names[key], found) for key, found in launches.items()))


def _counters(name: str, found: Mapping[str, float]) -> KernelCounters:
    return KernelCounters(
        kernel=name,
        bytes_read=found.get(READ, math.nan),
        bytes_written=found.get(WRITTEN, math.nan),
        atomic_warp_instructions=found.get(REDUCTIONS, 0.0) + found.get(ATOMICS, 0.0),
        occupancy=found.get(OCCUPANCY, math.nan) / 100.0,
        seconds=found.get(DURATION, math.nan),
    )


def _value(row: Mapping[str, str]) -> float:
    """In seconds and bytes; the profiler groups digits with commas."""
    try:
        value = float(row["Metric Value"].replace(",", ""))
    except ValueError:  # "n/a": the chip does not have the counter
        return math.nan
    unit = row["Metric Unit"]
    return value * _UNITS.get(unit, 1.0) * _SIZES.get(unit, 1.0)

"""What was measured of a device, and the rates that follow for estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.device import Device
from autotune.rates import Rates, nominal_rates
from autotune_tuning_db import CeilingsRow

UNITS = ("loop", "vector", "matrix")


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured rates of a device, per second.

    `read` and `copy` are bytes by the whole device (a copy's read and written), `read alone` by one
    core or multiprocessor; "matrix float32" and the like are floating-point operations by the whole
    device. `toolchain` are the versions they were measured with; `disturbed` says in words what a
    busy machine did to them, and such ones are not kept.
    """

    device: str
    measured: str
    toolchain: Mapping[str, str]
    rates: Mapping[str, float]
    disturbed: tuple[str, ...] = ()

    @classmethod
    def from_row(cls, row: CeilingsRow) -> Ceilings:
        """As the store keeps them."""
        return cls(row.device, row.measured, dict(row.toolchain), dict(row.rates))

    def to_row(self) -> CeilingsRow:
        """For the store."""
        return CeilingsRow(self.device, self.measured, self.toolchain, self.rates)


def workers_of(device: Device) -> int:
    """How many cores a CPU lends this process, or how many multiprocessors a GPU has."""
    return device.limits.get("sms") or max(device.thread_counts())


def rates_from(device: Device, found: Ceilings | None) -> Rates:
    """The rates of a device: measured where there are ceilings, nominal for the rest.

    What is not measured stays nominal for each worker: atomics, launches, steps, a GPU's cache. On
    a GPU a multiprocessor by itself reaches no less of the memory than its share.
    """
    workers = workers_of(device)
    rates = replace(nominal_rates(device.kind), workers=workers)
    if found is None:
        return rates
    measured = found.rates
    flops = {
        name: rate / workers for name, rate in measured.items() if name.partition(" ")[0] in UNITS
    }
    read, copy = measured.get("read", rates.read), measured.get("copy", rates.copy)
    return replace(
        rates,
        read=read,
        copy=copy,
        alone=max(measured.get("read alone", rates.alone), max(read, copy) / workers),
        flops={**rates.flops, **flops},
    )

"""Ceilings in the store: taken once for a device and its toolchain, read ever after."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from autotune.device import Device
from autotune.errors import AutotuneError, UserError
from autotune.lock import device_lock
from autotune.rates import Rates
from autotune.roofline.ceilings import Ceilings, rates_from
from autotune.roofline.quiet import contradictions, taken
from autotune.store import device_row, kept_ceilings, open_tuning_db
from autotune_tuning_db import StoreError, utc_now


def device_rates(device: Device) -> Rates:
    """The rates of a device by its kept ceilings, or nominal ones; never raises.

    Ceilings are good for ordering candidates whatever toolchain they were measured with.
    """
    row = kept_ceilings(device.identity)
    return rates_from(device, Ceilings.from_row(row) if row else None)


def ceilings_of(
    device: Device, *, measure: bool = False, say: Callable[[str], None] = lambda text: None
) -> Ceilings:
    """The kept ceilings of a local device; measured now where there are none.

    Also with `measure`, when the toolchain is another than theirs, and when they contradict each
    other. That takes some seconds and holds the device's lock; `say` is told. Those of a busy
    machine are returned with what disturbed them and not kept: older ones stay, and the next call
    measures again. What cannot be kept is returned all the same, with a warning. Raises UserError
    for a kind of device that cannot be measured.
    """
    from autotune.fingerprint import toolchain

    versions = toolchain(device.kind)
    row = None if measure else kept_ceilings(device.identity)
    if row is not None and dict(row.toolchain) == versions and not contradictions(row.rates):
        return Ceilings.from_row(row)
    take = _measurer(device)
    with device_lock(device.lock_name, waiting=say):
        say(f"measuring what {device.label} can do at best, a few seconds")
        measured = taken(device, take)
    found = Ceilings(device.identity, utc_now(), versions, measured.rates, measured.disturbed)
    if found.disturbed:
        return found
    try:
        with open_tuning_db() as store:
            store.add_device(device_row(device))
            store.put_ceilings(found.to_row())
    except (AutotuneError, StoreError) as error:
        warnings.warn(f"{error} The ceilings are not kept.", stacklevel=2)
    return found


def _measurer(device: Device) -> Callable[[Device], dict[str, float]]:
    if device.kind == "cpu":
        from autotune.roofline.cpu import measure_cpu

        return measure_cpu
    if device.kind == "cuda":
        from autotune.roofline.gpu import measure_gpu

        return measure_gpu
    raise UserError(f"{device.label} is a {device.kind} device, which cannot be measured here.")

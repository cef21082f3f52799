"""The devices of this machine, and finding the one a person names."""

from __future__ import annotations

from autotune.device.base import Device
from autotune.device.cpu import CpuDevice, local_cpu
from autotune.errors import DeviceNotFoundError

__all__ = ["CpuDevice", "Device", "find_device", "local_cpu", "local_devices"]


def local_devices() -> tuple[Device, ...]:
    """Every device of this machine, the best first."""
    return (local_cpu(),)


def find_device(name: str | None = None) -> Device:
    """The local device a name means: None (the best), a kind, an identity or the start of one.

    Raises DeviceNotFoundError when nothing here is called so, or more than one device is.
    """
    devices = local_devices()
    if name is None:
        return devices[0]
    wanted = name.strip().lower()
    found = [d for d in devices if d.identity == wanted] or [d for d in devices if d.kind == wanted]
    if not found and any(wanted.startswith(f"{device.kind}-") for device in devices):
        found = [device for device in devices if device.identity.startswith(wanted)]
    here = ", ".join(f"{device.kind} ({device.identity})" for device in devices)
    if not found:
        raise DeviceNotFoundError(
            f"no device {name!r} on this machine; it has {here}: "
            f"name one of these, or leave --device out for the best."
        )
    if len(found) > 1 and wanted != found[0].kind:
        several = ", ".join(device.identity for device in found)
        raise DeviceNotFoundError(f"{name!r} means several devices: {several}; name one in full.")
    return found[0]

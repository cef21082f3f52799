"""The devices of this machine, and finding the one a person names."""

from __future__ import annotations

from autotune.device import gpus
from autotune.device.base import Device
from autotune.device.cpu import CpuDevice, local_cpu
from autotune.device.find import choose, described
from autotune.errors import DeviceNotFoundError

__all__ = [
    "CpuDevice",
    "Device",
    "described",
    "find_device",
    "local_cpu",
    "local_devices",
    "why_no_gpu",
]


def local_devices() -> tuple[Device, ...]:
    """Every device of this machine, the best first: usable GPUs, the CPU, GPUs that are not."""
    found = gpus.local_gpus().devices
    usable = [device for device in found if device.unusable is None]
    return (*usable, local_cpu(), *(device for device in found if device.unusable is not None))


def find_device(name: str | None = None, *, usable: bool = True) -> Device:
    """The local device a name means; None means the best one.

    `cpu`, `cuda` (its first usable GPU), `cuda:1`, a GPU's UUID, an identity or the start of one,
    or a market name as in `h200`. The CPU is found without asking for GPUs. `usable=False` finds
    also a GPU that nothing can run on. Raises DeviceNotFoundError when nothing here is called so,
    unlike devices are, or the one that is cannot be used.
    """
    if name is None:
        return local_devices()[0]
    if not isinstance(name, str):
        raise DeviceNotFoundError(f"a device is named by a string, as in 'cuda:1'; got {name!r}.")
    if name.strip().lower().startswith("cpu"):
        return choose(name, [local_cpu()])
    return choose(name, local_devices(), no_gpu=gpus.local_gpus().reason, usable=usable)


def why_no_gpu() -> str | None:
    """Why kernels cannot run on a GPU here, with the remedy where there is one; or None."""
    found = gpus.local_gpus()
    if any(device.unusable is None for device in found.devices):
        return None
    return found.reason or found.devices[0].unusable

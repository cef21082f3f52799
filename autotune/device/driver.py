"""GPUs as the CUDA driver lists them: libcuda through ctypes, neither CuPy nor a context."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LIBRARY = "libcuda.so.1"

_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "warp": 10,
    "sms": 16,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block": 97,  # what a kernel gets on request, not the 48 KiB it gets without
}
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76
_BUS_WIDTH, _ECC, _COMPUTE_MODE = 37, 32, 20
_PROHIBITED = 2

_STATUSES = {
    3: "this process was forked from one that had used CUDA; start it afresh (spawn)",
    34: f"the {LIBRARY} found is the toolkit's stub; take its folder out of LD_LIBRARY_PATH",
    100: "the NVIDIA driver sees no GPU",
    101: "the NVIDIA driver sees no GPU",
    802: "the GPUs are not ready; the NVIDIA fabric manager has to run",
    803: "the driver's library and its kernel module differ; load the module again, or reboot",
    804: "the CUDA compatibility library does not support this GPU; take it off the search path",
}


@dataclass(frozen=True, slots=True)
class DriverGpu:
    """An entry of the driver's list.

    `index` is its number for CUDA, CuPy and torch in this process: the driver has already applied
    CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. `limits` are those of MACHINE_LIMITS["cuda"]; of a
    MIG slice or under an MPS limit they are the part's, not the card's. `uuid` is without the
    prefix GPU- or MIG-.
    """

    index: int
    name: str
    uuid: str
    bus_id: str
    bus_width: int
    ecc: bool
    prohibited: bool
    limits: Mapping[str, int] = field(compare=False)


@dataclass(frozen=True, slots=True)
class DriverReading:
    """The GPUs, and the newest CUDA the driver supports (13000 for 13.0); or why there are none."""

    cuda: int = 0
    gpus: tuple[DriverGpu, ...] = ()
    reason: str | None = None


class _DriverError(Exception):
    """A call that did not succeed; the text says why."""


def read_driver(
    load: Callable[[str], Any] = ctypes.CDLL, environ: Mapping[str, str] = os.environ
) -> DriverReading:
    """Ask the driver; a machine without one costs a failed look-up of its library.

    The driver and not NVML is asked for what makes an identity: it is there wherever a kernel can
    run, it numbers GPUs as the process will use them, and only it knows the SM count of every
    kind of GPU, the L2 cache and the limits of a block. `cuInit` makes no context and takes no
    memory on the GPU, but a process forked after it cannot use CUDA.
    """
    try:
        library = load(LIBRARY)
    except OSError:
        return DriverReading(reason=f"there is no NVIDIA driver here ({LIBRARY} is not found)")
    cuda = ctypes.c_int(0)
    try:
        _call(library, "cuInit", 0)
        _call(library, "cuDriverGetVersion", ctypes.byref(cuda))
        count = ctypes.c_int(0)
        _call(library, "cuDeviceGetCount", ctypes.byref(count))
        gpus = tuple(_read(library, index) for index in range(count.value))
    except _DriverError as error:
        return DriverReading(cuda.value, reason=_hidden(environ) or str(error))
    reason = None if gpus else _hidden(environ) or _STATUSES[100]
    return DriverReading(cuda.value, gpus, reason)


def _read(library: Any, index: int) -> DriverGpu:
    from uuid import UUID

    handle, size = ctypes.c_int(0), ctypes.c_size_t(0)
    name, bus, octets = (ctypes.create_string_buffer(size) for size in (256, 32, 16))
    _call(library, "cuDeviceGet", ctypes.byref(handle), index)
    _call(library, "cuDeviceGetName", name, len(name), handle)
    _call(library, "cuDeviceGetPCIBusId", bus, len(bus), handle)
    newer = "cuDeviceGetUuid_v2"  # the older one answers for the whole card of a MIG slice
    _call(library, newer if hasattr(library, newer) else "cuDeviceGetUuid", octets, handle)
    _call(library, "cuDeviceTotalMem_v2", ctypes.byref(size), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int(0)
        _call(library, "cuDeviceGetAttribute", ctypes.byref(value), number, handle)
        return value.value

    limits = {key: attribute(number) for key, number in _ATTRIBUTES.items()}
    compute = 10 * attribute(_COMPUTE_MAJOR) + attribute(_COMPUTE_MINOR)
    return DriverGpu(
        index,
        name.value.decode(errors="replace").strip(),
        str(UUID(bytes=octets.raw)),
        bus.value.decode(errors="replace"),
        attribute(_BUS_WIDTH),
        bool(attribute(_ECC)),
        attribute(_COMPUTE_MODE) == _PROHIBITED,
        {"compute": compute, **limits, "device_memory": size.value},
    )


def _call(library: Any, function: str, *arguments: Any) -> None:
    status = getattr(library, function)(*arguments)
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(text))
        said = (text.value or b"unknown").decode(errors="replace")
        raise _DriverError(_STATUSES.get(status, f"{function} failed with {status}: {said}"))


def _hidden(environ: Mapping[str, str]) -> str | None:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    return f"CUDA_VISIBLE_DEVICES={visible!r} names no GPU that is here"

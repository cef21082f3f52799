"""Launches that may begin before the kernel ahead of them has ended (compute 9.0 and newer).

A kernel launched so waits itself, by `griddepcontrol.wait`, for what the kernel ahead has written;
until there it overlaps with its end. CUDA Programming Guide, "Programmatic Dependent Launch and
Synchronization". CuPy has no such launch, so this one goes to the driver's library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

_ATTRIBUTE = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_FIRST = 90  # compute capability
_KEPT = 64  # launch configurations, one for each stream


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_EARLY = _Attribute(id=_ATTRIBUTE, value=1)


def dependent_launch(cuda: Any) -> Callable[..., None]:
    """What launches on the current device, called as CuPy's `driver.launchKernel` is.

    Where a kernel cannot begin early, CuPy's own: the kernel then finds nothing to wait for.
    """
    capability = int(cuda.Device().compute_capability)
    launch = _driver_launch() if capability >= _FIRST else None
    if launch is None:
        return cuda.driver.launchKernel  # type: ignore[no-any-return]

    configs: dict[tuple[int, ...], tuple[Any, Any]] = {}  # only read by launches

    def launch_early(
        handle: int,
        gx: int,
        gy: int,
        gz: int,
        bx: int,
        by: int,
        bz: int,
        shared: int,
        stream: int,
        values: int,
        extra: int,
    ) -> None:
        extent = gx, gy, gz, bx, by, bz, shared, stream
        known = configs.get(extent)
        if known is None:
            config = _Config((gx, gy, gz), (bx, by, bz), shared, stream, ctypes.pointer(_EARLY), 1)
            known = ctypes.byref(config), config
            if len(configs) >= _KEPT:
                configs.clear()
            configs[extent] = known
        status = launch(known[0], handle, values, extra)
        if status:
            raise cuda.driver.CUDADriverError(status)

    return launch_early


@cache
def _driver_launch() -> Any:
    """cuLaunchKernelEx of the loaded driver, or None where there is none (before CUDA 11.8)."""
    try:
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    launch.restype = ctypes.c_int
    return launch

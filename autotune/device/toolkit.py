"""Whether the CuPy that is installed fits the driver and the GPU, and what to do if not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

_DRIVERS = {13: 580, 12: 525}
"""The first driver release for each major release of CUDA that there is an extra for."""

_OLDEST = {13: 75, 12: 50}
"""The oldest compute capability that each major release of CUDA compiles for."""


@dataclass(frozen=True, slots=True)
class Cupy:
    """The installed CuPy: its package, and the CUDA it is built for (0 when that is not told)."""

    package: str
    cuda: int = 0


def find_cupy(version_of: Callable[[str], str] = version) -> Cupy | None:
    """The installed CuPy, looked up without importing it.

    The wheels carry the major release of CUDA in their names. A build from source or from conda
    does not; whether that one fits turns out when it is used.
    """
    if not _importable("cupy"):
        return None
    found = []
    for major in range(11, 16):
        try:
            version_of(f"cupy-cuda{major}x")
        except PackageNotFoundError:
            continue
        found.append(Cupy(f"cupy-cuda{major}x", major))
    return found[0] if len(found) == 1 else Cupy("cupy")


def unfit(driver: str, cuda: int, compute: int, cupy: Cupy | None) -> str | None:
    """Why kernels cannot be built and run, with the remedy, or None.

    `driver` is its release ("" when unknown), `cuda` the newest CUDA it supports (13000 for
    13.0), `compute` the GPU's compute capability (90 for 9.0).
    """
    extra = fitting_extra(cuda, compute)
    named = f"driver {driver}" if driver else "the driver"
    supports = f"{named} supports CUDA {release(cuda)}"
    if extra is None:
        if cuda // 1000 < min(_DRIVERS):
            return f"{supports}: install driver {min(_DRIVERS.values())} or newer"
        return f"no CUDA since 12 compiles for compute capability {capability(compute)}"
    remedy = f"pip install 'onf-autotune[{extra}]'"
    if cupy is None:
        return f"CuPy is not installed: {remedy}"
    replace = f"pip uninstall {cupy.package} and {remedy}"
    if cupy.cuda > cuda // 1000:
        newer = _DRIVERS.get(cupy.cuda)
        other = f"install driver {newer} or newer, or " if newer else ""
        return f"{supports} and {cupy.package} needs CUDA {cupy.cuda}: {other}{replace}"
    if compute < _OLDEST.get(cupy.cuda, 0):
        older = f"CUDA {cupy.cuda} no longer compiles for compute capability {capability(compute)}"
        return f"{older}: {replace}"
    return None


def fitting_extra(cuda: int, compute: int) -> str | None:
    """The extra of this package with the newest CuPy that works there, or None."""
    fits = [m for m, oldest in _OLDEST.items() if m <= cuda // 1000 and oldest <= compute]
    return f"cuda{max(fits)}" if fits else None


def release(cuda: int) -> str:
    """13000 as 13.0."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}"


def capability(compute: int) -> str:
    """90 as 9.0."""
    return f"{compute // 10}.{compute % 10}"


def _importable(name: str) -> bool:
    return name in sys.modules or find_spec(name) is not None

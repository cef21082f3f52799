"""The BLAS that NumPy has loaded, and where its matrix products are."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

from autotune import Requirement

# Fortran names of xGEMM in the builds NumPy ships or links: {0} is s or d. The Fortran interface
# passes every argument by address, so 64-bit integers serve 32-bit libraries too (little-endian).
_SYMBOLS = ("scipy_{0}gemm_64_", "{0}gemm_64_", "scipy_{0}gemm_", "{0}gemm_", "{0}gemm")
_ACCELERATE = "/System/Library/Frameworks/Accelerate.framework/Accelerate"


@dataclass(frozen=True, slots=True)
class Blas:
    """A loaded BLAS: its file and the addresses of sgemm and dgemm in this process."""

    path: str
    name: str
    sgemm: int
    dgemm: int


@lru_cache(maxsize=1)
def numpy_blas() -> Blas | None:
    """The BLAS that NumPy has loaded, or None when none with known symbols is found."""
    if sys.byteorder != "little":
        return None
    for path, name in _loaded():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        addresses = [_address(library, kind) for kind in "sd"]
        if all(addresses):
            return Blas(path, name, *addresses)
    return None


def _loaded() -> Iterator[tuple[str, str]]:
    from threadpoolctl import threadpool_info

    import_module("numpy")  # which loads its BLAS
    for each in threadpool_info():
        if each["user_api"] == "blas":
            yield each["filepath"], f"{each['internal_api']} {each['version']}"
    if sys.platform == "darwin":
        yield _ACCELERATE, "accelerate"


def _address(library: ctypes.CDLL, kind: str) -> int:
    for symbol in _SYMBOLS:
        function = getattr(library, symbol.format(kind), None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def _missing() -> str | None:
    if numpy_blas() is None:
        return "NumPy's BLAS offers no sgemm and dgemm under a known name"
    return None


needs_blas = Requirement("blas", _missing)


def blas_gemm(dtype: str) -> int:
    """Address of the BLAS's matrix product for "float32" or "float64"; OSError without one."""
    blas = numpy_blas()
    if blas is None:
        raise OSError(_missing())
    return {"float32": blas.sgemm, "float64": blas.dgemm}[dtype]

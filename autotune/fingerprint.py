"""The fingerprint of a variant's source, and the versions of what it was built and run with."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

import autotune
from autotune.model import Variant
from autotune.reach import reach, reach_of


@cache
def fingerprint(variant: Variant) -> str:
    """Hash of what a measurement of `variant` depends on in source, as 16 hex digits.

    It covers the declarations of variant and operation (not their names), the functions they are
    made of, and whatever those reach through globals, closures, default arguments and imports in
    their bodies: functions, classes, module-level constants, files named by a module-level `Path`,
    CUDA, C and Fortran sources with all that they include.
    The walk stays within the plugin: the standard library, this engine and other installed
    distributions count by name (and by version, unless `toolchain` has it). Comments, docstrings
    and layout do not count, nor do the version of Python, paths, or the order of registration.
    The parts of a variant count as it does itself.
    """
    parts = [f"parts {_parts_fingerprint(variant.parts)}"] if variant.parts else []
    return _digest([*reach_of(variant).facts, *parts])


@cache
def _parts_fingerprint(parts: tuple[Variant, ...]) -> str:
    """Hash of several variants, walked as one: what they share is visited once."""
    ordered = sorted(parts, key=lambda part: (part.operation.name, part.name))
    return _digest(reach(ordered).facts)


def code_fingerprint(function: Any) -> str:
    """Hash of one function and all that it calls, as 16 hex digits."""
    return _digest(reach(function).facts)


def _digest(facts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(sorted(facts)).encode()).hexdigest()[:16]


def toolchain(kind: str = "cpu") -> dict[str, str]:
    """Versions of the libraries as loaded, by kind of device.

    Keys: autotune, python, numpy; for a CPU also numba, llvmlite, blas (name, version,
    architecture it chose) and numba_threads (the threading layer), which loads numba and takes a
    moment, c and fortran (the compilers); for a GPU cupy, nvrtc, cuda (the runtime) and driver.
    """
    import numpy as np

    common = {
        "autotune": autotune.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if kind == "cuda":
        from autotune.cuda.versions import cuda_versions

        return common | cuda_versions()
    import llvmlite
    import numba

    from autotune.native.compilers import compiler_versions

    return common | {
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "blas": _blas(),
        "numba_threads": _threading_layer(),
        **compiler_versions(),
    }


@cache
def _blas() -> str:
    """BLAS libraries in this process, as "openblas 0.3.30 SkylakeX"."""
    import threadpoolctl

    described = {
        " ".join(
            str(pool[key])
            for key in ("internal_api", "version", "architecture")
            if pool.get(key) is not None
        )
        for pool in threadpoolctl.threadpool_info()
        if pool.get("user_api") == "blas"
    }
    return ", ".join(sorted(described))


def _threading_layer() -> str:
    """The threading layer in use or, before the first parallel kernel, the one numba will pick."""
    numba: Any = import_module("numba")
    config = numba.config
    try:
        return str(numba.threading_layer())
    except ValueError:
        pass
    if config.THREADING_LAYER in ("tbb", "omp", "workqueue"):
        return str(config.THREADING_LAYER)
    pools = {"tbb": "tbbpool", "omp": "omppool", "workqueue": "workqueue"}
    for layer in config.THREADING_LAYER_PRIORITY:
        try:
            import_module(f"numba.np.ufunc.{pools[layer]}")
        except ImportError:
            continue
        return str(layer)
    return ""

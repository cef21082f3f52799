"""Shared libraries of native kernels: on disk under all they were built from, loaded once."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import LaunchError
from autotune.kept import KeptCode
from autotune.native.build import build_library
from autotune.native.compilers import the_compiler
from autotune.native.flags import options_of, processor
from autotune.native.source import INCLUDES

if TYPE_CHECKING:
    from autotune.native.source import NativeSource

KEPT = KeptCode("native", ".so", largest=256 * 2**20)
"""The libraries on disk."""

_loaded: dict[str, ctypes.CDLL] = {}
_lock = threading.Lock()


def library(
    source: NativeSource, compiler: str, dtype: str, config: Mapping[str, Any]
) -> ctypes.CDLL:
    """The library of a source for a dtype and the build options of a config, loaded.

    Its name on disk stands for the source and its includes, the compiler and its version, the
    options, and the processor: for whatever runs here, not just for this source.
    """
    found = the_compiler(compiler)
    options = source.command(dtype, options_of(config))
    parts = [source.digest, source.path.name, found.path, found.version, *options]
    parts.append(processor() if "-march=native" in options else platform.machine())
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    with _lock:
        if name not in _loaded:
            places = (f"-I{source.path.parent}", f"-I{INCLUDES}")
            code = KEPT.get(name, lambda: build_library(source.path, found, (*options, *places)))
            _loaded[name] = _load(name, code, source.path.name)
        return _loaded[name]


def _load(name: str, code: bytes, what: str) -> ctypes.CDLL:
    """Load from the cache or, where it could not be kept, from a file that is gone at once."""
    try:
        if KEPT.load(name) == code:
            return _open(KEPT.file(name))
        with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
            file = Path(folder) / f"{name}.so"
            file.write_bytes(code)
            return _open(file)
    except OSError as error:
        raise LaunchError(
            f"cannot load what was built from {what} ({error}); set AUTOTUNE_HOME to a directory "
            f"whose files may be executed."
        ) from error


def openmp_that_rests() -> dict[str, str]:
    """What LLVM's and Intel's OpenMP have to be told, unless the user has said how to wait.

    Their threads spin for 200 ms after their work, on CPUs that whatever comes next may need: here
    for one.
    """
    told = {"KMP_BLOCKTIME", "OMP_WAIT_POLICY"} & os.environ.keys()
    return {} if told else {"KMP_BLOCKTIME": "1"}


def _open(file: Path) -> ctypes.CDLL:
    """Load a library, and have its OpenMP runtime read its settings."""
    with contextlib.ExitStack() as stack:
        for name, value in openmp_that_rests().items():
            os.environ[name] = value
            stack.callback(os.environ.pop, name, None)
        loaded = ctypes.CDLL(str(file))
        if hasattr(loaded, "omp_get_max_threads"):
            loaded.omp_get_max_threads()
        return loaded

"""NVIDIA's run-time compiler through ctypes: from CUDA C++ to machine code, without a driver."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from autotune.errors import AutotuneError

_spent = [0.0]
_MAJORS = (14, 13, 12)
_ERROR = re.compile(
    r"^(?P<file>[^\n(]*)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<text>.+)$", re.M
)


class CompileError(AutotuneError):
    """CUDA C++ that NVRTC rejects: one line in the message, everything it said in `log`."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@cache
def library() -> Any:
    """The loaded compiler; raises CompileError with the remedy where there is none."""
    tried = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error).splitlines()[0])
    raise CompileError(
        "no NVRTC on this machine, so CUDA kernels cannot be compiled: install the extra cuda13 "
        "(or cuda12) of onf-autotune, or the wheel nvidia-cuda-nvrtc.",
        "\n".join(tried),
    )


def _candidates() -> Iterator[str]:
    """Where it may lie: wheels of this environment, the toolkit's directory, the loader's path.

    The newest that the driver can run the code of; without a driver the newest.
    """
    toolkit = (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda")
    most = driver_major() or _MAJORS[0]
    for major in sorted(_MAJORS, key=lambda major: (major > most, -major)):
        soname = f"libnvrtc.so.{major}"
        patterns = [(entry, f"nvidia/*/lib/{soname}") for entry in sys.path if entry]
        patterns += [(root, f"lib*/{soname}") for root in toolkit if root]
        for root, pattern in patterns:
            yield from (str(path) for path in sorted(Path(root).glob(pattern)))
        yield soname


def driver_major() -> int | None:
    """The CUDA release that the driver supports; a driver runs no code of a later one."""
    supported = ctypes.c_int()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(supported))
    except (OSError, AttributeError):
        return None
    return supported.value // 1000 if status == 0 and supported.value else None


@cache
def version() -> str:
    """Version of the compiler, as "13.0"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@cache
def build() -> str:
    """What tells updates of one version apart, as far as is known: the size of the library."""
    try:
        return str(_file(str(library()._name)).stat().st_size)
    except OSError:
        return ""


def _file(name: str) -> Path:
    """The file of a loaded library; OSError where the loader alone knows it, or several."""
    if Path(name).is_absolute():
        return Path(name)
    lines = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split(maxsplit=5)[5] for line in lines if f"/{name}" in line}
    if len(loaded) != 1:
        raise FileNotFoundError(name)
    return Path(loaded.pop())


@cache
def architectures() -> tuple[int, ...]:
    """The compute capabilities it makes machine code for, ascending: (75, 80, 90, ...)."""
    if not hasattr(library(), "nvrtcGetNumSupportedArchs"):
        raise CompileError(f"NVRTC {version()} does not tell what it compiles for.")
    count = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "its architectures")
    found = (ctypes.c_int * count.value)()
    _check(library().nvrtcGetSupportedArchs(found), "its architectures")
    return tuple(sorted(found))


def require_architecture(compute: int, driver: str = "") -> None:
    """Raises CompileError, in one sentence with versions and remedy, for a card it cannot serve.

    Without this, each kernel would fail on its own.
    """
    try:
        known = architectures()
    except CompileError:  # none installed, or one too old to be asked: what is compiled tells
        return
    if compute in known:
        return
    newer = compute > known[-1]
    remedy = "pip install -U nvidia-cuda-nvrtc" if newer else "pip install 'onf-autotune[cuda12]'"
    raise CompileError(
        f"NVRTC {version()} makes no code for compute capability {compute / 10:.1f}, only for "
        f"{known[0] / 10:.1f} to {known[-1] / 10:.1f}{f' (driver {driver})' if driver else ''}: "
        f"{remedy} brings one that does."
    )


@contextmanager
def compile_clock() -> Iterator[Callable[[], float]]:
    """Seconds spent compiling in this process so far, inside the context."""
    before = _spent[0]
    yield lambda: _spent[0] - before


def compile_cubin(text: str, name: str, options: Sequence[str]) -> bytes:
    """Machine code of a source text, called `name` in messages.

    The first of `options` names a real architecture (`--gpu-architecture=sm_90`).
    """
    nvrtc, program = library(), ctypes.c_void_p()
    created = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), name.encode(), 0, None, None
    )
    _check(created, name)
    try:
        encoded = [option.encode() for option in options]
        started = perf_counter()
        status = nvrtc.nvrtcCompileProgram(
            program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
        )
        _spent[0] += perf_counter() - started
        if status:
            log = _text(program, "ProgramLog")
            where = f"{name} does not compile ({' '.join(options[:1])})"
            raise CompileError(f"{where}: {first_error(log, status)}", log)
        return _bytes(program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def first_error(log: str, status: int = 0) -> str:
    """The first error in a compiler's log, as "file:line: text"."""
    found = _ERROR.search(log)
    if found:
        return f"{Path(found['file']).name}:{found['line']}: {found['text'].strip()}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    blamed = next((line for line in lines if "error" in line.lower()), None)
    return blamed or (lines[0] if lines else f"NVRTC status {status}")


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    nvrtc, size = library(), ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer), what)
    return buffer.raw


def _text(program: ctypes.c_void_p, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode(errors="replace")


def _check(status: int, what: str) -> None:
    if status:
        raise CompileError(f"NVRTC failed on {what} with status {status}.")

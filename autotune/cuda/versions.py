"""Versions of what CUDA kernels are built and run with."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

from autotune.device.nvml import read_nvml
from autotune.device.toolkit import release
from autotune.errors import AutotuneError

_PROC = Path("/proc/driver/nvidia/version")
_RELEASE = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")


@cache
def cuda_versions() -> dict[str, str]:
    """Keys: cupy, nvrtc, cuda (the runtime), driver; empty where something is not installed."""
    return {"cupy": _cupy(), "nvrtc": _nvrtc(), "cuda": _runtime(), "driver": driver()}


def _cupy() -> str:
    try:
        return str(import_module("cupy").__version__)
    except ImportError:
        return ""


def _nvrtc() -> str:
    from autotune.cuda import nvrtc

    try:
        return nvrtc.version()
    except AutotuneError:
        return ""


def _runtime() -> str:
    try:
        number = int(import_module("cupy").cuda.runtime.runtimeGetVersion())
    except Exception:
        return ""
    return release(number)


def driver() -> str:
    """The driver's release, such as 580.65.06; from its file, or from NVML."""
    try:
        found = _RELEASE.search(_PROC.read_text(encoding="utf-8"))
        if found:
            return found[1]
    except OSError:
        pass
    return read_nvml(()).driver

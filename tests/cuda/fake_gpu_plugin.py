"""Makes a measuring process believe in a GPU: the fake CuPy, a device, and what kernels do.

The kernels themselves are real CUDA C++, of tests/gpu/gpu_scale.cu, and are really compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fake_cupy as fake
from measuring_bench import FakeGpu

import autotune.device
from autotune.cuda import bench

patch = pytest.MonkeyPatch()
cupy = fake.install(patch)
cupy.pool.limit = 1 << 30
patch.setattr(autotune.device, "find_device", lambda name=None, **_: FakeGpu())
patch.setattr(bench, "LONGEST_HEAT", 0.0)
patch.setattr(bench, "WAKE_SECONDS", 0.0)


@cupy.kernel("scale", "PPqi")
def scale(launched: Any, x: int, y: int, count: int, repeats: int) -> None:
    """As long as its grid is, and faster with larger blocks."""
    fake.at(y, count, "f4")[...] = fake.at(x, count, "f4") * 2
    cupy.clock += repeats * (1e-5 + 1e-3 / launched.block[0])


@cupy.kernel("beyond", "PPqi")
def beyond(launched: Any, x: int, y: int, count: int, repeats: int) -> None:
    scale(launched, x, y, count, repeats)
    fake.at(y, count + 1, "f4")[count] = 0.0


@cupy.kernel("illegal", "PPqi")
def illegal(launched: Any, *_: int) -> None:
    cupy.fail_with = 700


@cupy.kernel("trap", "PPqi")
def trap(launched: Any, *_: int) -> None:
    cupy.fail_with = 719

"""Ceilings of a GPU: memory by streaming, products by the vendor's library, units by instructions.

The library is cuBLAS through CuPy; it has no TF32 product that one asks for, and no plain
multiply-adds, so kernels of a few instructions measure these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from autotune.arrays import Array, array_dtype
from autotune.bench import Bench, bench_for
from autotune.cuda import CudaSource
from autotune.device import Device
from autotune.errors import AutotuneError

SOURCE = CudaSource(Path(__file__).parent / "ceilings.cu")

STREAMED = 8
"""Bytes read or copied over bytes of L2, so that little is there from the sample before."""

UNKNOWN_L2_BYTES = 64 << 20
SQUARE = 4096
"""Rows of the matrices that are multiplied."""

ROUNDS, THREADS, BLOCKS_PER_SM = 4096, 512, 2
READERS, READING_BLOCKS = 1024, 2
SAMPLES = 7
DTYPES = ("float64", "float32", "float16", "bfloat16")

_CHAINS = 8
_PRODUCT_FLOPS = 2 * 16 * 8 * 8  # of a warp's m16n8k8
# Entry and flops of a thread per round and chain.
_UNITS = {
    "vector float64": ("chain_float64", 2.0),
    "vector float32": ("chain_float32", 2.0),
    "matrix tf32": ("product_tf32", _PRODUCT_FLOPS / 32),
}


def measure_gpu(device: Device) -> dict[str, float]:
    """Rates per second: see `Ceilings`; the best of some samples by events, on a heated card.

    A product that the library does not have is left out.
    """
    bench = bench_for(device)
    bench.settle()
    found = {**_memory(bench), **_units(bench)}
    random = np.random.default_rng(0)
    factors = [random.standard_normal((SQUARE, SQUARE), "float32") for _ in range(2)]
    for dtype in DTYPES:
        rate = _product(bench, dtype, factors)
        if rate is not None:
            found[f"matrix {dtype}"] = rate
    bench.memory.release()
    return found


def _best(bench: Bench, call: Callable[[], object]) -> float:
    """Seconds of the fastest of some samples, after one that is not counted."""
    call()
    bench.synchronize()
    timer = bench.timer(call, lambda: None, mode="hot", repeatable=True)
    return min(timer() for _ in range(SAMPLES))


def _memory(bench: Bench) -> dict[str, float]:
    """Reading by all multiprocessors and by one, and copying."""
    cupy: Any = import_module("cupy")
    sms = bench.device.limits["sms"]
    pairs = STREAMED * (bench.device.last_level_cache_bytes or UNKNOWN_L2_BYTES) // 32 * 2
    data = cupy.arange(2 * pairs, dtype="float64")
    half = data[:pairs], data[pairs:]
    out = cupy.empty(READING_BLOCKS * sms * READERS, "float64")

    def read(blocks: int, count: int) -> float:
        launch = SOURCE.kernel("read_stream").launcher(
            grid=(blocks, 1, 1), block=(READERS, 1, 1), arguments="PqP"
        )
        start, target = data.data.ptr, out.data.ptr
        return 16.0 * count / _best(bench, partial(launch, start, count, target))

    return {
        "read": read(READING_BLOCKS * sms, pairs),
        "read alone": read(1, max(pairs // sms, READERS)),
        "copy": 16.0 * pairs / _best(bench, lambda: cupy.copyto(half[1], half[0])),
    }


def _units(bench: Bench) -> dict[str, float]:
    """Operations per second of instructions, with every multiprocessor full of warps."""
    cupy: Any = import_module("cupy")
    blocks = BLOCKS_PER_SM * bench.device.limits["sms"]
    out = cupy.empty(blocks * THREADS, "float64")
    found = {}
    for name, (entry, flops) in _UNITS.items():
        launch = SOURCE.kernel(entry).launcher(
            grid=(blocks, 1, 1), block=(THREADS, 1, 1), arguments="Pi"
        )
        seconds = _best(bench, partial(launch, out.data.ptr, ROUNDS))
        found[name] = blocks * THREADS * ROUNDS * _CHAINS * flops / seconds
    return found


def _product(bench: Bench, dtype: str, factors: Sequence[Array]) -> float | None:
    """Operations per second of a product of square matrices, or None where there is none."""
    cupy: Any = import_module("cupy")
    try:
        left, right = (cupy.asarray(each.astype(array_dtype(dtype))) for each in factors)
        out = cupy.empty((SQUARE, SQUARE), array_dtype(dtype))
        return 2.0 * SQUARE**3 / _best(bench, lambda: cupy.matmul(left, right, out=out))
    except (AutotuneError, TypeError, ValueError, RuntimeError, MemoryError):
        return None

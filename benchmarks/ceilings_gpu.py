"""Ceilings of a GPU's arithmetic units, for the floors that docs/ compares kernels with.

python benchmarks/ceilings_gpu.py
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import cupy
from common import write

from autotune.cuda import CudaSource
from autotune.device import find_device

SOURCE = CudaSource(Path(__file__).parent / "ceilings.cu")
WARPS, ROUNDS, SAMPLES = 16, 4096, 7
# Name and floating-point operations of one instruction of a warp, by the number of the unit.
UNITS = (
    ("float64 mma m8n8k4", 2 * 8 * 8 * 4),
    ("float64 mma m16n8k4", 2 * 16 * 8 * 4),
    ("float64 fma", 2 * 32),
    ("float32 fma", 2 * 32),
    ("TF32 mma m16n8k8", 2 * 16 * 8 * 8),
    ("bfloat16 mma m16n8k16", 2 * 16 * 8 * 16),
)

_HOPPER = 1  # needs compute 9.0


def rate(unit: int, sms: int) -> float:
    """Operations per second with every multiprocessor busy."""
    blocks, threads = 2 * sms, 32 * WARPS
    launch = SOURCE.kernel("ceiling", {"UNIT": unit}).launcher(
        grid=(blocks, 1, 1), block=(threads, 1, 1), arguments="Pi"
    )
    out = cupy.empty(blocks * threads)
    times = []
    for _ in range(SAMPLES + 2):
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        launch(out.data.ptr, ROUNDS)
        last.record()
        last.synchronize()
        times.append(cupy.cuda.get_elapsed_time(first, last) * 1e-3)
    instructions = blocks * WARPS * ROUNDS * 8
    return instructions * UNITS[unit][1] / median(times[2:])


def main() -> None:
    device = find_device("cuda")
    rows: list[dict[str, Any]] = []
    for unit, (name, _) in enumerate(UNITS):
        if unit == _HOPPER and device.limits["compute"] < 90:
            continue
        reached = rate(unit, device.limits["sms"]) * 1e-12
        rows.append({"unit": name, "tflops": round(reached, 1)})
        print(f"{name:24s} {reached:7.1f} TFLOP/s", flush=True)
    write(
        "ceilings_gpu",
        rows,
        packages=("cupy",),
        gpu=device.identity,
        gpu_label=device.label,
        driver=device.facts.get("driver"),
    )


if __name__ == "__main__":
    main()

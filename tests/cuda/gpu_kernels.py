"""An operation with variants for a fake GPU, and what dispatch needs to find that GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_cupy as fake
import numpy as np

from autotune.cuda import CudaSource, pointer, strides_in_elements
from autotune.model import Intermediate, Pass
from autotune.registry import operation, variant

SOURCE = CudaSource(Path(__file__).parent / "toy.cu")
DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Gpu:
    """As CudaDevice, of an H200."""

    index: int = 0
    kind: str = "cuda"
    identity: str = "cuda-sm90-132sm-141gb-0"
    family: str = "cuda-sm90-around128sm"
    label: str = "NVIDIA H200"
    limits: dict[str, int] = field(default_factory=dict, hash=False)

    def thread_counts(self) -> tuple[int, ...]:
        return (1,)

    def placements(self) -> tuple[str, ...]:
        return ("free",)


@operation(
    inputs="x[M,N] y[M,N]",
    outputs="total[M,N] peak[M]:accumulator",
    residuals=("peak",),
    scalars={"factor": 2.0},
    axes=(("N",), ("M",)),
    dtypes=DTYPES,
    name="gpu_sum",
)
def gpu_sum(x: Any, y: Any, *, factor: float) -> Any:
    """factor * (x + y), and the largest of each row."""
    total = factor * (x + y)
    return total, total.max(axis=1)


OWNED = Pass("all", parallel=("M",), reads=("x", "y"), writes={"total": "owned", "peak": "owned"})
ARGUMENTS = "PqqPqqPqqPPqqd"


@variant(
    gpu_sum,
    "cuda_sum",
    device="cuda",
    passes=[OWNED],
    intermediates=[Intermediate("rows", ("M", "N"), "accumulator")],
)
def cuda_sum(problem: Any, config: Any) -> Any:
    sizes = problem.sizes
    kernel = SOURCE.kernel("sum", {"REAL": problem.dtype})
    launch = kernel.launcher(grid=(sizes["M"],), block=(32,), arguments=ARGUMENTS)

    def run(x: Any, y: Any, total: Any, peak: Any, rows: Any, factor: float) -> None:
        words = [(pointer(a), *strides_in_elements(a)) for a in (x, y, total)]
        flat = [number for each in words for number in each]
        launch(*flat, pointer(peak), pointer(rows), sizes["M"], sizes["N"], factor)

    return run


@variant(gpu_sum, "cuda_broken", device="cuda", passes=[OWNED], constraints=["M > 8"])
def cuda_broken(problem: Any, config: Any) -> Any:
    launch = SOURCE.kernel("sum").launcher(grid=(1,), block=(4096,), arguments=ARGUMENTS)
    return lambda x, y, total, peak, factor: launch(*[0] * 13, 0.0)


def install_kernel(cupy: fake.FakeCupy, dtype: str = "float64") -> None:
    """What `sum` does on the fake GPU, for one dtype at a time."""
    kind = np.dtype(dtype)
    wide = np.dtype("f4") if kind.itemsize < 4 else kind

    @cupy.kernel("sum", ARGUMENTS)
    def run(launched: Any, *v: Any) -> None:
        m, n, factor = v[11:]
        x, y, total = (fake.at(v[i], (m, n), kind, (v[i + 1], v[i + 2])) for i in (0, 3, 6))
        rows = fake.at(v[10], (m, n), wide)
        rows[...] = factor * (x.astype(wide) + y.astype(wide))
        total[...] = rows.astype(kind)
        fake.at(v[9], m, wide)[...] = rows.max(axis=1)


def values(dtype: str = "float64") -> list[Any]:
    """Two host arrays to add."""
    rng = np.random.default_rng(5)
    return [rng.standard_normal((3, 8)).astype(dtype) for _ in range(2)]

"""An operation of your own with three variants: declared, tuned, dispatched.

python examples/own_operation.py
autotune tune row_norm --shape 512x1024 --plugin examples/own_operation.py
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from autotune import Pass, PowerOfTwo, dispatch, operation, tune, variant


@operation(inputs="x[M,N]", outputs="y[M,N]", flops="3*M*N")
def row_norm(x: Any) -> Any:
    """Every row divided by its Euclidean norm; this function is the float64 reference."""
    return x / np.sqrt((x * x).sum(axis=1, keepdims=True))


ROWS = Pass("rows", parallel=("M",), sequential=("N",), reads=("x",), writes={"y": "owned"})


@variant(row_norm, "numpy", passes=[ROWS])
def with_numpy(x: Any, y: Any) -> None:
    """NumPy, one temporary for the squares."""
    np.divide(x, np.sqrt(np.einsum("ij,ij->i", x, x))[:, None], out=y)


@numba.njit(nogil=True)
def normalise(x: Any, y: Any, block: int) -> None:
    """Two sweeps over each row, in blocks of rows."""
    for start in range(0, x.shape[0], block):
        for i in range(start, min(start + block, x.shape[0])):
            total = x.dtype.type(0)
            for j in range(x.shape[1]):
                total += x[i, j] * x[i, j]
            scale = 1 / np.sqrt(total)
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] * scale


@variant(
    row_norm,
    "loops",
    passes=[ROWS],
    tunables=[PowerOfTwo("block", 1, 64, default=8)],
    constraints=["block <= max(M, 1)"],
)
def with_loops(x: Any, y: Any, block: int) -> None:
    """Compiled loops."""
    normalise(x, y, block)


@variant(row_norm, "careless")
def careless(x: Any) -> Any:
    """Wrong on purpose: the gate rejects it, and it is never timed."""
    return x / np.abs(x).sum(axis=1, keepdims=True)


def main() -> None:
    policy = tune(row_norm, (512, 1024), dtype="float32", budget="5s")
    print(policy.verdict.reason)
    kernel = dispatch(row_norm, (512, 1024), dtype="float32")
    x = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
    print(f"{kernel.variant} [{kernel.config}]: norms {np.linalg.norm(kernel(x), axis=1)[:3]}")


if __name__ == "__main__":
    main()

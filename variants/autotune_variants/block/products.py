"""The matrix products between the parts of a block: by BLAS, or on the threads of the parts.

A block calls its parts and its products in turn. Where BLAS has threads of its own, those go on
spinning for a while after each product, on the CPUs that the threads of the next part need, and the
other way round: on few cores that costs many times what the products take. Products in vector
registers run on numba's threads, which the parts use too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Multiply = Callable[[Array, Array, Array], object]


class Products(NamedTuple):
    """`times(a, b, c)` is c = a b, `transposed_times(a, b, c)` is c = a^T b; packed matrices."""

    times: Multiply
    transposed_times: Multiply

    def times_transposed(self, a: Array, b: Array, c: Array, spare: Array) -> None:
        """c = a b^T; `spare` has room for b."""
        turned = spare.reshape(-1)[: b.size].reshape(b.shape[1], b.shape[0])
        np.copyto(turned, b.T)
        self.times(a, turned, c)


def products(problem: Any, config: Mapping[str, Any]) -> Products:
    """By what `products` says: "blas" or "simd"."""
    if config["products"] == "blas":
        return Products(
            lambda a, b, c: np.matmul(a, b, out=c),
            lambda a, b, c: np.matmul(a.T, b, out=c),
        )
    return Products(_in_registers(problem, config, 0), _in_registers(problem, config, 1))


def _in_registers(problem: Any, config: Mapping[str, Any], flags: int) -> Multiply:
    from autotune_variants.block.steps import product_step
    from autotune_variants.gemm import register_gemm
    from autotune_variants.norm import table

    settings = {
        table.GEMM: register_gemm(problem.dtype),
        table.WORKERS: int(config["threads"]),
        table.FLAGS: flags,
    }
    rows = (table.X, table.WEIGHT, table.OUT)
    return table.bind((product_step,), problem.dtype, settings, rows)

"""Plain attention takes no more memory than it declares."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from autotune.device import local_cpu
from autotune.execution import Executable
from autotune.model import Problem
from autotune.plugins import load_plugins
from autotune.registry import registry

BUFFERS = 1 << 17
"""What NumPy itself keeps of strided operands, whatever their size."""


@pytest.mark.parametrize("operation", ["attention", "attention_backward", "attention_train"])
def test_grouped_heads_that_lie_apart_are_not_copied_beside_the_workspace(operation: str) -> None:
    load_plugins()
    problem = Problem.of(
        registry.operation(operation), {"B": 1, "H": 4, "Hkv": 2, "N": 512, "D": 64}
    )
    config = {"threads": 1, "placement": "free"}
    run = Executable(registry.variant(operation, "numpy"), problem, config, local_cpu())
    rng = np.random.default_rng(0)

    def array(shape: tuple[int, ...]) -> Any:
        if len(shape) < 4:
            return rng.standard_normal(shape).astype("float32")
        b, heads, n, d = shape
        return rng.standard_normal((b, n, heads, d)).astype("float32").transpose(0, 2, 1, 3)

    tensors = (*problem.operation.inputs, *problem.operation.fresh_outputs)
    arrays = [array(tensor.shape(problem.sizes)) for tensor in tensors]
    run(*arrays, 0.125)  # its workspace stays
    tracemalloc.start()
    try:
        run(*arrays, 0.125)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < BUFFERS

"""Arrays of more than 2**31 elements: offsets of 64 bits, on this machine's GPU."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from contract import Candidate, Case, config_or_skip, in_each_dtype
from test_gpu_arrangements import ARRANGED
from test_gpu_tiled import TILED

from autotune.arrays import array_dtype
from autotune.execution import Executable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("compiled"),
    pytest.mark.xdist_group("far"),  # the memory once
]

FAR = 1 << 31
"""Elements from the first of a batch to the first of the next."""
STRIDED = Case.of((2, 1, 1, 70, 91, 64), layout="strided")
MANY = Case.of((1, (1 << 18) + 1, (1 << 18) + 1, 128, 128, 64))
"""Packed, with its last head beyond 2**31 elements."""
BOUND = {"float64": 1e-9, "float32": 1e-3, "bfloat16": 6e-2, "float16": 1e-2}


def strided() -> list[Candidate]:
    """All variants of the forward, and of forward and backward."""
    found = in_each_dtype(lambda _: STRIDED, (*TILED, *ARRANGED))
    return [each for each in found if each.operation != "attention_backward"]


def many() -> list[Candidate]:
    """The forward of every tiled variant in 16 bits."""
    found = in_each_dtype(lambda _: MANY, TILED)
    return [each for each in found if each.operation == "attention" and "16" in each.dtype]


@pytest.fixture(scope="module")
def expanse(device: Any) -> Any:
    """Two batches' distance in the widest dtype, as bytes."""
    cupy: Any = import_module("cupy")
    size = 8 * (FAR + (1 << 24))
    if cupy.cuda.runtime.memGetInfo()[0] < 2 * size:
        pytest.skip("needs 34 GiB of free device memory")
    yield cupy.zeros(size, "uint8")
    cupy.get_default_memory_pool().free_all_blocks()


def built(candidate: Candidate, device: Any) -> Executable:
    config = config_or_skip(candidate, device)
    return Executable(candidate.declared, candidate.problem, config, device)


def close(found: Any, right: Any, dtype: str) -> bool:
    """Near enough that no element was taken from elsewhere."""
    wide = found.get().astype("float64")
    return bool(np.abs(wide - right).max() <= BOUND[dtype] * max(np.abs(right).max(), 1.0))


@pytest.mark.parametrize("candidate", strided(), ids=str)
def test_batches_far_apart(candidate: Candidate, device: Any, expanse: Any) -> None:
    problem, kernel = candidate.problem, built(candidate, device)
    operation, sizes, start = problem.operation, problem.sizes, 0
    rng, arrays = np.random.default_rng(0), []
    for tensor in (*operation.inputs, *operation.outputs):
        dtype = array_dtype(problem.element_type(tensor.dtype))
        shape = tensor.shape(sizes)
        inner = int(np.prod(shape[1:]))
        packed = [dtype.itemsize * int(np.prod(shape[n + 1 :])) for n in range(1, len(shape))]
        strides = (FAR * dtype.itemsize, *packed)
        memory = expanse.data + start
        arrays.append(type(expanse)(shape, dtype, memory, strides=strides))
        start += -(-inner * 8 // 256) * 256
    drawn = [rng.standard_normal(tensor.shape(sizes)) for tensor in operation.inputs]
    inputs, outputs = arrays[: len(drawn)], arrays[len(drawn) :]
    for array, values in zip(inputs, drawn, strict=True):
        array[...] = import_module("cupy").asarray(values)
    kernel(*arrays, *problem.scalars())
    wide = [array.get().astype("float64") for array in inputs]
    (scale,) = problem.scalars()
    expected = operation.reference(*wide, **problem.flags, scale=scale)
    for found, right in zip(outputs, expected, strict=True):
        assert close(found, right, problem.dtype)


@pytest.mark.parametrize("candidate", many(), ids=str)
def test_heads_beyond_32_bits(candidate: Candidate, device: Any) -> None:
    cupy: Any = import_module("cupy")
    problem, kernel = candidate.problem, built(candidate, device)
    operation, sizes = problem.operation, problem.sizes
    if cupy.cuda.runtime.memGetInfo()[0] < 6 * 2 * FAR:
        pytest.skip("needs 24 GiB of free device memory")
    inputs = [cupy.zeros(t.shape(sizes), array_dtype(problem.dtype)) for t in operation.inputs]
    outputs = [
        cupy.empty(t.shape(sizes), array_dtype(problem.element_type(t.dtype)))
        for t in operation.outputs
    ]
    rng = np.random.default_rng(0)
    last = [rng.standard_normal(array.shape[2:]) for array in inputs]
    for array, values in zip(inputs, last, strict=True):
        array[0, -1] = cupy.asarray(values)
    (scale,) = problem.scalars()
    kernel(*inputs, *outputs, scale)
    wide = [array[:, -1:].get().astype("float64") for array in inputs]
    expected = operation.reference(*wide, **problem.flags, scale=scale)
    for found, right in zip(outputs, expected, strict=True):
        assert close(found[:, -1:], right, problem.dtype)
    assert not outputs[0][:, :-1].astype("float32").any()
    cupy.get_default_memory_pool().free_all_blocks()

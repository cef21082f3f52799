"""kv_append writes one row of each head and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_samples import GPUS, needs_nvrtc

from autotune import dispatch
from autotune.cuda.ahead import compiling_for
from autotune.cuda.launch import collecting
from autotune.errors import ShapeError
from autotune.model import Problem
from autotune.plugins import load_plugins
from autotune.registry import registry

SHAPE = {"B": 2, "Hkv": 3, "N": 5, "D": 4, "Dv": 6}


def arrays(dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = ((2, 3, 5, 4), (2, 3, 5, 6), (2, 3, 4), (2, 3, 6))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def test_the_cache_that_a_row_is_appended_to_is_not_what_has_to_move() -> None:
    load_plugins()
    problem = Problem.of(registry.operation("kv_append"), SHAPE, "float32")
    assert problem.compulsory_bytes == (2 * 3 * (4 + 6) * 4, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_row_is_written_in_place(dtype: str) -> None:
    keys, values, key, value = arrays(dtype)
    before = keys.copy(), values.copy()
    kernel = dispatch("kv_append", keys, values, key, value)
    assert kernel.variant == "numpy"
    found = kernel(keys, values, key, value, position=2)
    assert found[0] is keys
    assert found[1] is values
    for cache, old, row in ((keys, before[0], key), (values, before[1], value)):
        assert (cache[:, :, 2] == row).all()
        others = [0, 1, 3, 4]
        assert (cache[:, :, others] == old[:, :, others]).all()


def test_without_a_position_it_is_the_last_row() -> None:
    keys, values, key, value = arrays()
    dispatch("kv_append", keys, values, key, value)(keys, values, key, value)
    assert (keys[:, :, -1] == key).all()


@pytest.mark.parametrize("position", [-1, 5, 1.5, float("nan"), float("inf")])
def test_a_position_outside_of_the_cache_is_named(position: float) -> None:
    given = arrays()
    kernel = dispatch("kv_append", *given)
    with pytest.raises(ShapeError, match=f"position {position:g} is no row of a cache of 5"):
        kernel(*given, position=position)
    assert kernel.variant == "numpy"


def test_an_empty_cache_has_no_row() -> None:
    kernel = dispatch("kv_append", dims={**SHAPE, "N": 0})
    keys, values, key, value = arrays()
    with pytest.raises(ShapeError, match="position -1 is no row of a cache of 0"):
        kernel(keys[:, :, :0], values[:, :, :0], key, value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_it_compiles(dtype: str) -> None:
    needs_nvrtc()
    load_plugins()
    problem = Problem.of(registry.operation("kv_append"), SHAPE, dtype)
    for gpu in GPUS[:2]:
        with compiling_for(gpu.arch), collecting() as launchers:
            registry.variant("kv_append", "cuda_copy").build(problem, {})
        assert [each.function.entry for each in launchers] == ["append_row"]

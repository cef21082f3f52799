"""rmsnorm on CUDA as far as no GPU is needed: arguments, launches, compiling."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_samples import GPUS, H200, needs_nvrtc, spread

from autotune.cuda.ahead import compiling_for
from autotune.cuda.launch import collecting
from autotune.model import Config, Problem, is_deterministic, predict
from autotune.model.space import default_config
from autotune.plugins import load_plugins
from autotune.registry import registry

OPERATIONS = ("rmsnorm", "rmsnorm_backward")


def problem(operation: str, n: int, d: int, dtype: str = "float32") -> Problem:
    load_plugins()
    return Problem.of(registry.operation(operation), {"N": n, "D": d}, dtype)


def macros(one: Problem, config: Any) -> list[tuple[str, dict[str, Any]]]:
    with collecting() as launchers:
        registry.variant(one.operation, "cuda_rows").build(one, config)
    return [(each.function.entry, dict(each.function.macros)) for each in launchers]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("n", "d"), [(1, 1), (8192, 64), (8192, 4096), (10, 8192)])
def test_every_size_has_a_config(name: str, n: int, d: int) -> None:
    one = problem(name, n, d)
    variant = registry.variant(name, "cuda_rows")
    config = default_config(variant, one, H200)
    assert config is not None
    assert is_deterministic(variant)
    counts = predict(variant, one, config)
    assert counts.launches == (2 if "backward" in name else 1)
    assert counts.atomics == 0


def test_vectors_of_sixteen_bytes_where_rows_align() -> None:
    config = Config(lanes=32, block=256, blocks=64)
    ((entry, given),) = macros(problem("rmsnorm", 100, 64, "bfloat16"), config)
    assert (entry, given["VECTOR"], given["LANES"]) == ("normalise", 8, 32)
    ((_, odd),) = macros(problem("rmsnorm", 100, 63, "bfloat16"), config)
    assert odd["VECTOR"] == 1


def test_the_backward_sums_its_shares_in_a_launch_of_its_own() -> None:
    found = macros(problem("rmsnorm_backward", 9, 520), Config(lanes=32, block=128, blocks=64))
    assert [entry for entry, _ in found] == ["backward_rows", "sum_parts"]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_it_compiles(name: str, dtype: str) -> None:
    needs_nvrtc()
    gpu = GPUS[len(dtype) % len(GPUS)]
    one = problem(name, 5000, 1000 if dtype == "float64" else 64, dtype)
    variant = registry.variant(name, "cuda_rows")
    with compiling_for(gpu.arch):
        variant.build(one, next(spread(variant, one, gpu, 1, 7)))

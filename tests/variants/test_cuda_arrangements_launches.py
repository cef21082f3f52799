"""What the study's arrangements on CUDA launch, without a GPU."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from arrangements_on_cuda import everything, one_row_and_column, train

from autotune.cuda import CudaSource
from autotune.model import Config, Problem, Variant, predict
from autotune.model.traits import intermediate_shapes
from autotune.reach import reach_of
from autotune.registry import registry
from autotune_variants.attention.cuda import arrangements

STRUCT = struct.Struct("<72qd")


class Recorded:
    """In place of compiled kernels: what was launched, with the struct that it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches: list[tuple[str, int, int, tuple[Any, ...]]] = []
        monkeypatch.setattr(CudaSource, "kernel", self._kernel)
        monkeypatch.setattr(arrangements, "pointer", lambda array: array.ctypes.data)
        monkeypatch.setattr(
            arrangements,
            "strides_in_elements",
            lambda array: tuple(stride // array.itemsize for stride in array.strides),
        )

    def _kernel(self, entry: str, macros: Mapping[str, Any]) -> Any:
        launches = self.launches

        class Kernel:
            def launcher(self, *, grid: Any, block: Any, arguments: str) -> Any:
                assert arguments == f"S{STRUCT.size}"
                assert grid[1:] == block[1:] == (1, 1)
                return lambda packed: launches.append(
                    (entry, grid[0], block[0], STRUCT.unpack(packed))
                )

        return Kernel()


def call(variant: Variant, problem: Problem, config: Config) -> dict[str, np.ndarray[Any, Any]]:
    """Run on NumPy arrays; the arrays by name."""
    arrays = {
        tensor.name: np.zeros(tensor.shape(problem.sizes), problem.dtype)
        for tensor in (*variant.operation.inputs, *variant.operation.outputs)
    }
    shapes = intermediate_shapes(variant, problem, config)
    for each, (shape, dtype) in zip(variant.intermediates, shapes, strict=True):
        arrays[each.name] = np.zeros(shape, dtype)
    variant.build(problem, config)(*arrays.values(), 0.125)
    return arrays


@pytest.mark.parametrize("variant", everything())
def test_every_pass_is_one_launch(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    sizes = {"B": 2, "H": 4, "Hkv": 2, "Nq": 9, "Nk": 11, "D": 8, "Dv": 6}
    dtype = "float32" if "float32" in variant.dtypes else "float16"
    problem = Problem.of(variant.operation, sizes, dtype)
    config = one_row_and_column(variant, problem)
    call(variant, problem, config)
    assert len(recorded.launches) == predict(variant, problem, config).launches
    for each, (_, blocks, threads, _) in zip(variant.passes, recorded.launches, strict=True):
        assert threads == config["block"], each.name
        assert 0 < blocks <= 2 * 4 * 9 * config.get("splits", 1), each.name


def test_kernels_get_every_array_where_the_struct_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    sizes = {"B": 2, "H": 4, "Hkv": 2, "Nq": 9, "Nk": 11, "D": 8, "Dv": 6}
    problem = Problem.of(registry.operation("attention_train"), sizes, "float32")
    variant = train("cuda_v3")
    arrays = call(variant, problem, one_row_and_column(variant, problem))
    words = recorded.launches[0][3]
    names = ("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v")
    for place, name in enumerate(names):
        strides = [stride // 4 for stride in arrays[name].strides]
        assert words[5 * place : 5 * place + 5] == (arrays[name].ctypes.data, *strides), name
    assert words[40:45] == (0, 0, 0, 0, 0)  # v3 has no lse
    assert words[50:55] == words[30:35]  # GK's sums are GK itself
    assert words[60:62] == (arrays["a"].ctypes.data, arrays["gs"].ctypes.data)
    assert words[62:66] == (0, 0, 0, 0)
    assert words[66:73] == (2, 4, 2, 9, 11, 1, 0.125)


def test_nothing_is_launched_where_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    problem = Problem.of(
        registry.operation("attention_train"), {"B": 0, "H": 1, "N": 5, "D": 4}, "float32"
    )
    config = one_row_and_column(train("cuda_v4"), problem)
    call(train("cuda_v4"), problem, config)
    assert recorded.launches == []


def test_a_fingerprint_covers_the_kernels_that_a_variant_launches() -> None:
    facts = "\n".join(reach_of(train("cuda_arranged_copies")).facts)
    assert arrangements.ROWS.digest in facts
    assert arrangements.SUMS.digest in facts
    headers = {file.name for file in arrangements.COLUMNS.files()}
    assert {"arrangements_base.cuh", "arrangements_recompute.cuh"} <= headers

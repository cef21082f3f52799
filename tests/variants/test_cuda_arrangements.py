"""The study's arrangements on CUDA: what they declare, and what follows from it."""

from __future__ import annotations

import pytest
from arrangements_on_cuda import Hopper, everything, one_row_and_column, study_problem, train

from autotune.model import Config, Problem, Variant, is_deterministic, predict, workspace_bytes
from autotune.model.space import default_config, why_not
from autotune.model.traits import intermediate_shapes
from autotune.registry import registry

UPDATES = 536_870_912  # B*H*Nq*Nk*D of the study's profile: 2 * 2048**2 * 64


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        *(("separate", 1), ("separate_stored", 0), ("v2", 2), ("v3", 1), ("v4", 0)),
        *(("arranged_separate", 1), ("arranged_v2", 2), ("arranged_v3", 1), ("arranged_v4", 0)),
        *(("arranged_gq_atomic", 1), ("arranged_copies", 0), ("arranged_recomputed", 0)),
    ],
)
def test_atomics_are_one_for_each_row_column_and_feature(name: str, arrays: int) -> None:
    variant, problem = train(f"cuda_{name}"), study_problem()
    config = one_row_and_column(variant, problem)
    assert predict(variant, problem, config).atomics == arrays * UPDATES
    assert is_deterministic(variant) == (arrays == 0)


def test_a_tile_of_rows_adds_once() -> None:
    variant, problem = train("cuda_arranged_v3"), study_problem()
    config = one_row_and_column(variant, problem)
    tiled = Config({**config, "rows": 8})
    assert predict(variant, problem, tiled).atomics == UPDATES // 8


def test_grouped_heads_add_into_shared_keys() -> None:
    sizes = {"B": 3, "H": 6, "Hkv": 2, "Nq": 10, "Nk": 7, "D": 5}
    problem = Problem.of(registry.operation("attention_train"), sizes, "float32")
    for name in ("cuda_v3", "cuda_arranged_gq_atomic"):
        config = one_row_and_column(train(name), problem)
        assert predict(train(name), problem, config).atomics == 3 * 6 * 10 * 7 * 5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_atomics_go_into_wider_sums(dtype: str) -> None:
    problem = study_problem(256, dtype)
    narrow, wide = train("cuda_v3_16bit"), train("cuda_v3")
    assert why_not(wide, problem, "cuda", Hopper.limits) is not None
    config = one_row_and_column(narrow, problem)
    names = [array.name for array in narrow.intermediates]
    shapes = dict(zip(names, intermediate_shapes(narrow, problem, config), strict=True))
    assert shapes["sum_k"] == ((2, 1, 256, 64), "float32")
    assert predict(narrow, problem, config).atomics == 2 * 256 * 256 * 64
    assert predict(narrow, problem, config).launches == len(wide.passes) + 1


@pytest.mark.parametrize(
    ("name", "launches", "matrices", "more"),
    [
        ("cuda_separate", 4, 1, 1024 * 2 * 512 * 8),
        ("cuda_separate_stored", 4, 2, 0),
        ("cuda_v2", 3, 0, 1024 * 2 * 512 * 8),
        ("cuda_v3", 5, 2, 0),
        ("cuda_v4", 5, 2, 0),
        ("cuda_arranged_recomputed", 2, 0, 256 * 2 * 4 * 512 * 8 + 2 * 2 * 512 * 8),
        ("cuda_arranged_copies", 3, 0, 2 * 128 * (2 * 512 * 64 * 8 + 2 * 4 * 512 * 8)),
    ],
)
def test_launches_and_workspace(name: str, launches: int, matrices: int, more: int) -> None:
    variant, problem = train(name), study_problem(512)
    config = default_config(variant, problem, Hopper())
    assert config is not None
    assert predict(variant, problem, config).launches == launches
    assert workspace_bytes(variant, problem, config) == matrices * 2 * 512**2 * 8 + more


def test_the_study_sweeps_a_column_once_for_each_feature() -> None:
    problem = study_problem(1024)
    reads = [
        predict(train(name), problem, one_row_and_column(train(name), problem)).bytes_read
        for name in ("cuda_v4", "cuda_arranged_v4")
    ]
    assert reads[0] - reads[1] == 2 * 63 * 2 * 1024**2 * 8


@pytest.mark.parametrize("variant", everything())
def test_every_output_is_written_and_every_array_read_is_there(variant: Variant) -> None:
    there = {tensor.name for tensor in variant.operation.inputs}
    for each in variant.passes:
        missing = set(each.reads) - there - set(each.writes)
        assert not missing, f"pass {each.name} reads {missing}, which nothing has written"
        there |= set(each.writes)
    assert {tensor.name for tensor in variant.operation.outputs} <= there


@pytest.mark.parametrize("variant", everything())
def test_a_default_for_every_size(variant: Variant) -> None:
    for sizes in ({"N": 1, "D": 1}, {"N": 4096, "D": 64}, {"N": 300, "D": 256}, {"N": 0, "D": 0}):
        for dtype in variant.dtypes:
            problem = Problem.of(variant.operation, {"B": 1, "H": 1, **sizes}, dtype)
            assert default_config(variant, problem, Hopper()) is not None


def test_matrices_beyond_the_memory_are_ruled_out() -> None:
    problem = study_problem(131_072)
    assert why_not(train("cuda_v4"), problem, "cuda", Hopper.limits) is not None
    assert why_not(train("cuda_arranged_recomputed"), problem, "cuda", Hopper.limits) is None

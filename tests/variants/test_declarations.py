"""What the built-in operations and variants declare, and what follows from it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from contract_sizes import typical

import autotune_variants  # noqa: F401
from autotune.device import local_cpu
from autotune.errors import ShapeError
from autotune.model import Config, Problem, Variant, is_deterministic, predict, workspace_bytes
from autotune.model.space import default_config
from autotune.registry import registry

CONFIG = Config(block_q=64, block_k=128, threads=2, placement="free")


def built_in() -> list[Any]:
    """Every CPU variant of the built-in operations."""
    return [
        pytest.param(variant, id=f"{operation.name}-{variant.name}")
        for operation in registry.operations()
        for variant in registry.variants(operation)
        if variant.device == "cpu" and variant.build.__module__.startswith("autotune_variants.")
    ]


def cpu_variants(operation: str) -> list[Variant]:
    """The variants of an operation that run on a CPU."""
    return [variant for variant in registry.variants(operation) if variant.device == "cpu"]


def train(n: int) -> Problem:
    """attention_train as the study measures it."""
    return Problem.of(registry.operation("attention_train"), (2, 1, n, 64), "float64")


def variant(name: str) -> Variant:
    """A variant of attention_train."""
    return registry.variant("attention_train", name)


def test_importing_the_plugin_does_not_import_numba() -> None:
    code = "import autotune_variants, sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_positional_shapes_and_defaults() -> None:
    problem = Problem.of(registry.operation("attention"), (2, 4, 100, 64))
    assert problem.sizes == {"B": 2, "H": 4, "Hkv": 4, "Nq": 100, "Nk": 100, "D": 64, "Dv": 64}
    assert problem.scalars() == (0.125,)
    assert problem.flops == 4 * 2 * 4 * 100 * 100 * 64
    assert Problem.of(registry.operation("decode"), (1, 8, 1000, 128)).sizes["Hkv"] == 8


def test_heads_that_do_not_divide_are_refused() -> None:
    for name in ("attention", "attention_backward", "attention_train", "decode"):
        with pytest.raises(ShapeError, match="H % Hkv"):
            Problem.of(registry.operation(name), {"B": 1, "H": 3, "Hkv": 2, "N": 8, "D": 8})
        with pytest.raises(ShapeError, match="H % Hkv"):
            Problem.of(registry.operation(name), {"B": 1, "H": 3, "Hkv": 0, "N": 8, "D": 8})


def test_sizes_of_zero_are_admitted() -> None:
    problem = Problem.of(registry.operation("attention"), {"B": 1, "H": 0, "N": 0, "D": 0})
    assert problem.scalars() == (1.0,)


@pytest.mark.parametrize("declared", built_in())
def test_every_output_is_written_and_every_array_read_is_there(declared: Variant) -> None:
    there = {tensor.name for tensor in declared.operation.inputs}
    for each in declared.passes:
        missing = set(each.reads) - there - set(each.writes)
        assert not missing, f"pass {each.name} reads {missing}, which nothing has written"
        there |= set(each.writes)
    assert {tensor.name for tensor in declared.operation.outputs} <= there


@pytest.mark.parametrize("declared", built_in())
def test_every_variant_is_deterministic(declared: Variant) -> None:
    assert is_deterministic(declared)


@pytest.mark.parametrize("declared", built_in())
def test_every_variant_has_a_default_for_tiny_and_large_sizes(declared: Variant) -> None:
    for n in (1, 4096):
        problem = Problem.of(declared.operation, typical(declared.operation.name, n))
        assert default_config(declared, problem, local_cpu()) is not None


def test_recomputing_leaves_nothing_that_grows_with_the_square() -> None:
    for name, square in (("five_pass", 2), ("gs_recomputed", 1), ("all_recomputed", 0)):
        small, large = (workspace_bytes(variant(name), train(n), CONFIG) for n in (1024, 2048))
        growth = large - small
        assert growth - square * 2 * 8 * (2048**2 - 1024**2) < 2 * 8 * 2048 * 64, name


def test_a_swept_column_reads_the_scores_once_for_each_feature() -> None:
    problem = train(1024)
    matrix = 2 * 1024**2 * 8
    for swept, on_chip, arrays in (
        ("four_pass", "four_pass_on_chip", 1),
        ("five_pass", "five_pass_on_chip", 2),
    ):
        reads = [predict(variant(n), problem, CONFIG).bytes_read for n in (swept, on_chip)]
        assert reads[0] - reads[1] == arrays * 63 * matrix


def test_accumulated_gradients_take_a_copy_for_each_thread() -> None:
    fused, columns = (
        workspace_bytes(variant(n), train(512), CONFIG) for n in ("fused", "five_pass")
    )
    parts = 2 * 2 * 2 * 512 * 64 * 8
    rows = 2 * 2 * 64 * 512 * 8
    matrices = 2 * 2 * 512**2 * 8
    assert abs((fused - parts - rows) - (columns - matrices)) < 2 * 128 * 64 * 8


def test_no_built_in_variant_needs_atomics() -> None:
    for declared in cpu_variants("attention_train"):
        config = default_config(declared, train(256), local_cpu())
        assert config is not None
        assert predict(declared, train(256), config).atomics == 0


def test_predicted_launches_follow_the_passes() -> None:
    counts = {v.name: len(v.passes) for v in cpu_variants("attention_train")}
    assert counts["four_pass"] == 5  # the study's four, and the sum of the threads' parts
    assert counts["five_pass"] == 5
    assert counts["fused"] == 3

"""The block on CUDA as far as no GPU is needed: what it declares, and what it is composed of."""

from __future__ import annotations

import pytest
from cuda_samples import H200

from autotune.cuda.launch import collecting
from autotune.fingerprint import fingerprint
from autotune.model import Problem, Variant, is_deterministic, predict
from autotune.model.space import default_config
from autotune.plugins import load_plugins
from autotune.registry import registry

load_plugins()
OPERATIONS = ("transformer_block", "projected_block")
VARIANTS = [
    pytest.param(each, id=f"{operation}-{each.name}")
    for name in OPERATIONS
    for operation in (name, f"{name}_train")
    for each in registry.variants(operation)
    if each.device == "cuda"
]


def problem(variant: Variant, dtype: str = "float64") -> Problem:
    return Problem.of(variant.operation, {"B": 2, "N": 512, "D": 64, "F": 256}, dtype)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_array_read_is_there_and_every_output_written(variant: Variant) -> None:
    assert is_deterministic(variant) == (not variant.name.endswith("_atomic"))
    there = {tensor.name for tensor in variant.operation.inputs}
    for each in variant.passes:
        missing = set(each.reads) - there - set(each.writes)
        assert not missing, f"pass {each.name} reads {missing}, which nothing has written"
        there |= set(each.writes)
    assert {tensor.name for tensor in variant.operation.outputs} <= there


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_built_without_a_gpu_and_its_own_launches_are_few(variant: Variant) -> None:
    for dtype in variant.operation.dtypes:
        one = problem(variant, dtype)
        config = default_config(variant, one, H200)
        assert config is not None
        with collecting() as launchers:
            variant.build(one, config)
        train, fused = "train" in one.operation.name, "norm_mlp" in variant.name
        # Normalisations, residuals, and weights side by side; the rest are parts and products.
        assert len(launchers) == (3 if fused else 4) + ((3 if fused else 5) if train else 0)


def test_few_launches_for_a_training_step() -> None:
    (variant,) = (
        v for v in registry.variants("transformer_block_train") if v.name == "cuda_parts_norm_mlp"
    )
    one = problem(variant)
    config = default_config(variant, one, H200)
    assert config is not None
    assert predict(variant, one, config).launches <= 13


def test_variants_of_the_parts_on_cuda_count_in_the_fingerprint() -> None:
    variant = registry.variant("transformer_block", "cuda_parts")
    served = {(part.operation.name, part.name) for part in variant.parts}
    for operation in ("attention", "gated_mlp", "norm_mlp_train"):
        for each in registry.variants(operation):
            assert ((operation, each.name) in served) == (each.device == "cuda")
    assert fingerprint(variant) != fingerprint(registry.variant("transformer_block", "parts"))

"""The MLP on CUDA as far as no GPU is needed: configs, launches, room, compiling."""

from __future__ import annotations

import os
import random
from itertools import islice
from typing import Any

import pytest
from cuda_samples import GPUS, H200, needs_nvrtc, spread

from autotune.cuda.ahead import compiling_for
from autotune.cuda.cublas import Layout, product
from autotune.cuda.launch import Prepared, collecting
from autotune.errors import DeclarationError
from autotune.model import Config, Problem, Variant, is_deterministic, predict
from autotune.model.space import configs, default_config, why_not
from autotune.plugins import load_plugins
from autotune.registry import registry

OPERATIONS = ("gated_mlp", "gated_mlp_backward", "gated_mlp_train", "norm_mlp", "norm_mlp_train")
STUDY = {"N": 8192, "D": 64, "F": 256}
load_plugins()
VARIANTS = [
    pytest.param(each, id=f"{name}-{each.name}")
    for name in OPERATIONS
    for each in registry.variants(name)
    if each.device == "cuda"
]


def problem(variant: Variant, sizes: dict[str, int], dtype: str | None = None) -> Problem:
    return Problem.of(variant.operation, sizes, dtype or variant.dtypes[0])


def launches(variant: Variant, one: Problem, config: Config) -> list[Prepared]:
    with collecting() as found:
        variant.build(one, config)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_has_a_default_and_repeats_bitwise_without_atomics(variant: Variant) -> None:
    assert is_deterministic(variant) != variant.name.endswith("_atomic")
    for sizes in ({"N": 1, "D": 1, "F": 1}, STUDY, {"N": 131_072, "D": 64, "F": 256}):
        for dtype in variant.dtypes:
            assert default_config(variant, problem(variant, sizes, dtype), H200) is not None


@pytest.mark.parametrize("variant", VARIANTS)
def test_declared_launches_are_those_that_are_made(variant: Variant) -> None:
    one = problem(variant, STUDY)
    config = default_config(variant, one, H200)
    assert config is not None
    declared = predict(variant, one, config).launches
    kernels = len(launches(variant, one, config))
    if variant.name == "cuda_blas":
        gradients = variant.operation.name not in ("gated_mlp", "norm_mlp")
        kernels += (8 if gradients else 2) + ("backward" not in variant.operation.name)
    assert kernels == declared


@pytest.mark.parametrize("name", ["cuda_dmma", "cuda_split_half"])
def test_shares_that_add_to_one_sum_need_less_room_and_as_many_additions(name: str) -> None:
    found = {}
    for variant in registry.variants("norm_mlp_train"):
        if variant.name in (name, f"{name}_atomic"):
            one = problem(variant, STUDY)
            config = default_config(variant, one, H200)
            assert config is not None
            found[variant.name] = predict(variant, one, config), config["shares"]
    (apart, shares), (together, same) = found[name], found[f"{name}_atomic"]
    of_weights = 3 * STUDY["D"] * STUDY["F"]
    itemsize = 8 if name == "cuda_dmma" else 4
    assert shares == same
    assert (apart.atomics, together.atomics) == (0, shares * of_weights)
    saved = (shares - 1) * of_weights * itemsize
    assert apart.workspace_bytes - together.workspace_bytes == saved


def test_nothing_hidden_lies_in_memory_where_tokens_are_on_chip() -> None:
    moved = {}
    for variant in registry.variants("norm_mlp_train"):
        if variant.name in ("cuda_dmma", "cuda_blas"):
            one = problem(variant, {"N": 131_072, "D": 64, "F": 256}, "float64")
            config = default_config(variant, one, H200)
            assert config is not None
            moved[variant.name] = predict(variant, one, config).bytes_written
    assert moved["cuda_blas"] > 4 * moved["cuda_dmma"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_shared_memory_fits_every_gpu(variant: Variant) -> None:
    for gpu in GPUS:
        for dtype in variant.dtypes:
            one = problem(variant, STUDY, dtype)
            for config in islice(configs(variant, one, gpu), 0, 400, 20):
                for each in launches(variant, one, config):
                    assert each.shared <= gpu.limits["shared_per_block"], (gpu, config)


def test_wide_tokens_are_left_to_products() -> None:
    for variant in registry.variants("norm_mlp_train"):
        if variant.device == "cuda":
            one = problem(variant, {"N": 64, "D": 4096, "F": 14_336})
            refused = why_not(variant, one, "cuda", H200.limits) is not None
            assert refused == (variant.name != "cuda_blas")


def test_products_refuse_what_does_not_fit() -> None:
    packed, gapped = Layout.packed(3, 4), Layout(3, 4, 8, 2)
    with pytest.raises(DeclarationError, match="cannot multiply"):
        product("float32", (0, packed), (1, packed), (2, Layout.packed(3, 3)))
    with pytest.raises(DeclarationError, match="copy it first"):
        product("float32", (0, gapped), (1, Layout.packed(4, 3)), (2, Layout.packed(3, 3)))


# One family and GPU each, spread over the operations; all of them with AUTOTUNE_TEST_COMPILE.
COMPILED = VARIANTS if os.environ.get("AUTOTUNE_TEST_COMPILE") else VARIANTS[1::7]


@pytest.mark.parametrize("variant", COMPILED)
def test_it_compiles(variant: Variant) -> None:
    needs_nvrtc()
    gpus = GPUS if os.environ.get("AUTOTUNE_TEST_COMPILE") else GPUS[1:2]
    for gpu in gpus:
        dtype = random.Random(str(gpu)).choice(variant.dtypes)
        one: Any = problem(variant, STUDY, dtype)
        config = next(spread(variant, one, gpu, 1, 5), None)
        if config is not None:
            with compiling_for(gpu.arch):
                variant.build(one, config)

"""Every tiled CUDA kernel compiles for every architecture that admits it; no GPU needed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cuda_samples import GPUS, H200, Gpu, cuda_variants, needs_nvrtc, problem_of, spread

from autotune.cuda.ahead import compiling_for
from autotune.model import Config, Problem, Variant
from autotune_variants.attention.cuda import tiled, tiled_space, wgmma_variants
from autotune_variants.attention.cuda.tiled import Form, Step

FAMILIES = ("cuda_dmma", "cuda_tf32x3", "cuda_mma", "cuda_simt", "cuda_wgmma", "cuda_split_half")
SMALL = ((1, 2, 100, 16), (1, 1, 65, 7), (2, 1, 129, 24), (1, 1, 100, 32))
SHAPES = ((2, 1, 512, 64), (1, 2, 129, 40), (1, 1, 65, 7), (1, 2, 1000, 256), (1, 1, 300, 80))
NO_SPILLS = ("--ptxas-options=--warn-on-spills", "--ptxas-options=-Werror")

Job = tuple[Variant, Problem, Config, Gpu]

everything = pytest.mark.skipif(
    not os.environ.get("AUTOTUNE_TEST_COMPILE"), reason="takes minutes; make test-compile runs it"
)


def _job(variant: Variant, dtype: str, shape: Any, gpu: Gpu, number: int) -> Job | None:
    """A variant with one of its configs, causal or not in turn; None where it admits none."""
    operation = variant.operation.name
    problem = problem_of(operation, shape, dtype, causal=bool(number % 2))
    config = next(spread(variant, problem, gpu, 1, number), None)
    return None if config is None else (variant, problem, config, gpu)


def _one_of(family: str, dtype: str, gpu: Gpu) -> Job | None:
    """Another variant of a family for each architecture, on another small shape."""
    place = GPUS.index(gpu) + FAMILIES.index(family)
    variants = [variant for _, variant in cuda_variants(family) if dtype in variant.dtypes]
    variants = variants[place % len(variants) :] + variants[: place % len(variants)]
    jobs = (_job(variant, dtype, SMALL[place % 4], gpu, place) for variant in variants)
    return next(filter(None, jobs), None)


def _all_of(family: str, gpu: Gpu) -> list[Job]:
    """Every variant of a family in every dtype, each on the next shape."""
    pairs = [(v, dtype) for _, v in cuda_variants(family) for dtype in v.dtypes]
    jobs = (
        _job(variant, dtype, SHAPES[place % len(SHAPES)], gpu, place)
        for place, (variant, dtype) in enumerate(pairs)
    )
    return list(filter(None, jobs))


def _dtypes(family: str) -> list[str]:
    return sorted({dtype for _, variant in cuda_variants(family) for dtype in variant.dtypes})


def _compile(job: Job) -> None:
    variant, problem, config, gpu = job
    with compiling_for(gpu.arch):
        variant.build(problem, config)


KINDS = [(family, dtype) for family in FAMILIES for dtype in _dtypes(family)]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype"), KINDS)
def test_a_config_of_every_family_and_dtype_compiles(family: str, dtype: str) -> None:
    needs_nvrtc()
    jobs = {str(gpu): _one_of(family, dtype, gpu) for gpu in GPUS}
    for gpu in GPUS:  # those of warpgroups: 9.0 only
        assert (jobs[str(gpu)] is None) == (family in FAMILIES[4:] and gpu is not H200)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compile, filter(None, jobs.values())))


@everything
@pytest.mark.slow
@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_spread_of_configs_compiles(family: str, gpu: Gpu) -> None:
    needs_nvrtc()
    jobs = _all_of(family, gpu)
    assert bool(jobs) == (family not in FAMILIES[4:] or gpu is H200)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compile, jobs))


# Fast configs keep what they know in registers.
FITTING = (
    ("attention_train", "cuda_dmma_atomic", "float64", {"forward": (3, 96), "backward": (2, 32)}),
    ("attention_train", "cuda_tf32x3", "float32", {"forward": (2, 128), "backward": (2, 64)}),
    ("attention_train", "cuda_dmma_stored", "float64", {"forward": (3, 96)}),
)


@everything
@pytest.mark.slow
@pytest.mark.parametrize(("operation", "name", "dtype", "passes"), FITTING)
def test_fast_configs_do_not_spill(
    operation: str, name: str, dtype: str, passes: dict[str, tuple[int, int]]
) -> None:
    needs_nvrtc()
    problem = problem_of(operation, (2, 1, 4096, 64), dtype)
    form = Form(atomic="atomic" in name, stored="stored" in name)
    config: dict[str, Any] = {"rows": 4, "chunks": 1, "stages": 2, "spread": not form.stored}
    owners = {"forward": tiled_space.FORWARD, "backward": tiled_space.BACKWARD}
    for role, (split, step) in passes.items():
        own = owners[role]
        config |= {own.split: split, own.step: step}
        sweep = "backward_columns" if form.atomic else "backward_both"
        entry = "forward_train" if role == "forward" else sweep
        macros = tiled.macros(problem, config, Step(entry, own), form)
        tiled.SOURCE.compile({**macros, "ALIGNED": True}, arch="sm_90a", options=NO_SPILLS)


@everything
@pytest.mark.slow
@pytest.mark.parametrize("depth", [64, 128])
def test_warpgroup_kernels_do_not_spill(depth: int) -> None:
    needs_nvrtc()
    half = problem_of("attention_train", (1, 2, 4096, depth), "bfloat16")
    macros = wgmma_variants.macros(half, {"key_step": 128}, wgmma_variants.HALF)
    wgmma_variants.HALF.compile(macros, arch="sm_90a", options=NO_SPILLS)
    if depth > 64:
        return
    wide = problem_of("attention_train", (1, 2, 4096, depth), "float32")
    macros = wgmma_variants.macros(wide, {"key_step": 128}, wgmma_variants.SPLIT)
    wgmma_variants.SPLIT.compile(macros, arch="sm_90a", options=NO_SPILLS)

"""Every tiled CUDA kernel compiles for every architecture that admits it; no GPU needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cuda_samples import GPUS, H200, Gpu, cuda_variants, needs_nvrtc, problem_of, spread

from autotune.cuda.ahead import compiling_for
from autotune.model import Config, Problem, Variant
from autotune_variants.attention.cuda import tiled, tiled_space, wgmma_variants
from autotune_variants.attention.cuda.tiled import Form, Step

FAMILIES = ("cuda_dmma", "cuda_tf32x3", "cuda_mma", "cuda_simt", "cuda_wgmma", "cuda_split_half")
SHAPES = ((2, 1, 512, 64), (1, 2, 129, 40), (1, 1, 65, 7), (1, 2, 1000, 256), (1, 1, 300, 80))
NO_SPILLS = ("--ptxas-options=--warn-on-spills", "--ptxas-options=-Werror")

Job = tuple[Variant, Problem, Config, Gpu]


def _jobs(gpu: Gpu, family: str, shapes: Any, count: int) -> list[Job]:
    """For every variant of a family some configs, each on the next shape, causal or not in turn."""
    jobs: list[Job] = []
    for place, (operation, variant) in enumerate(cuda_variants(family)):
        for number in range(count):
            shape, dtype = (
                shapes[(place + number) % len(shapes)],
                variant.dtypes[place % len(variant.dtypes)],
            )
            problem = problem_of(operation, shape, dtype, causal=bool((place + number) % 2))
            jobs += [(variant, problem, c, gpu) for c in spread(variant, problem, gpu, 1, number)]
    return jobs


def _compile(job: Job) -> None:
    variant, problem, config, gpu = job
    with compiling_for(gpu.arch):
        variant.build(problem, config)


def _compile_all(jobs: list[Job]) -> None:
    needs_nvrtc()
    assert jobs
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_compile, jobs))


@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("family", FAMILIES[:4])
def test_a_small_config_of_every_family_compiles(family: str, gpu: Gpu) -> None:
    jobs = [
        job for job in _jobs(gpu, family, ((1, 1, 100, 16),), 1) if "train" in job[1].operation.name
    ]
    _compile_all(jobs[-1:])


@pytest.mark.parametrize("family", FAMILIES[4:])
def test_warpgroup_kernels_compile_for_hopper_only(family: str) -> None:
    _compile_all(_jobs(H200, family, ((1, 1, 100, 64),), 1)[-1:])
    for gpu in GPUS:
        assert gpu is H200 or not _jobs(gpu, family, ((1, 1, 100, 64),), 1)


@pytest.mark.slow
@pytest.mark.parametrize("gpu", GPUS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_spread_of_configs_compiles(family: str, gpu: Gpu) -> None:
    jobs = _jobs(gpu, family, SHAPES, 1)[GPUS.index(gpu) % 2 :: 2]
    if not jobs:
        pytest.skip(f"{family} admits nothing on {gpu}")
    _compile_all(jobs)


# Fast configs keep what they know in registers.
FITTING = (
    ("attention_train", "cuda_dmma_atomic", "float64", {"forward": (3, 96), "backward": (2, 32)}),
    ("attention_train", "cuda_tf32x3", "float32", {"forward": (2, 128), "backward": (2, 64)}),
    ("attention_train", "cuda_dmma_stored", "float64", {"forward": (3, 96)}),
)


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

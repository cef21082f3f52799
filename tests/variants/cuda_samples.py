"""GPUs that need not be there, and samples of what the CUDA variants admit on them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pytest

from autotune.cuda import nvrtc
from autotune.cuda.nvrtc import CompileError
from autotune.model import Config, Problem, Variant
from autotune.model.space import configs, why_not
from autotune.plugins import load_plugins
from autotune.registry import registry

OPERATIONS = ("attention", "attention_backward", "attention_train")


@dataclass(frozen=True)
class Gpu:
    """What constraints ask of an architecture's usual GPU."""

    arch: str
    limits: dict[str, int] = field(hash=False)

    def thread_counts(self) -> tuple[int, ...]:
        return (1,)

    def placements(self) -> tuple[str, ...]:
        return ("free",)

    def __str__(self) -> str:
        return self.arch


def _gpu(arch: str, compute: int, sms: int, shared: int) -> Gpu:
    limits = {
        **{"compute": compute, "sms": sms, "shared_per_block": shared, "shared_per_sm": shared},
        **{"registers_per_sm": 65536, "max_threads_per_block": 1024, "warp": 32},
        **{"device_memory": 80 << 30, "l2_bytes": 50 << 20},
    }
    return Gpu(arch, limits)


A100, H200 = _gpu("sm_80", 80, 108, 166912), _gpu("sm_90a", 90, 132, 232448)
B200, RTX = _gpu("sm_100", 100, 148, 232448), _gpu("sm_120", 120, 170, 101376)
GPUS = (A100, H200, B200, RTX)


def needs_nvrtc() -> None:
    """Skip, and say so, where there is no compiler."""
    try:
        nvrtc.library()
    except CompileError as error:
        pytest.skip(str(error))


def cuda_variants(*prefixes: str) -> list[tuple[str, Variant]]:
    """(operation, variant) of every variant of attention whose name starts with a prefix."""
    load_plugins()
    return [
        (name, variant)
        for name in OPERATIONS
        for variant in registry.variants(name)
        if variant.device == "cuda" and variant.name.startswith(prefixes)
    ]


def problem_of(operation: str, shape: Any, dtype: str, **options: Any) -> Problem:
    """A problem of an attention operation."""
    load_plugins()
    return Problem.of(registry.operation(operation), shape, dtype, **options)


def spread(variant: Variant, problem: Problem, gpu: Gpu, count: int, seed: int) -> Iterator[Config]:
    """Some configs that the variant admits, spread over all of them; none if it admits none."""
    if why_not(variant, problem, "cuda", gpu.limits):
        return
    admitted = list(islice(configs(variant, problem, gpu), 5000))
    chosen = random.Random(seed).sample(admitted, min(count, len(admitted)))
    yield from chosen

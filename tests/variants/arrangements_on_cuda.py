"""What the tests of the arrangements on CUDA share: their variants, and a device's limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import autotune_variants  # noqa: F401
from autotune.model import Config, Problem, Variant
from autotune.model.space import default_config, violated
from autotune.registry import registry
from autotune_variants.attention.cuda import arrangements_variants

OPERATIONS = ("attention", "attention_backward", "attention_train")


class Hopper:
    """The limits of an H200."""

    limits: Mapping[str, int] = {
        "compute": 90,
        "registers_per_sm": 65536,
        "device_memory": 150_000_000_000,
    }

    def thread_counts(self) -> tuple[int, ...]:
        return (1,)

    def placements(self) -> tuple[str, ...]:
        return ("free",)


def arranged(operation: str) -> list[Variant]:
    """The variants of this family."""
    home = arrangements_variants.__name__
    return [v for v in registry.variants(operation) if v.build.__module__ == home]


def everything() -> list[Any]:
    """All of them, as parameters."""
    return [
        pytest.param(variant, id=f"{operation}-{variant.name}")
        for operation in OPERATIONS
        for variant in arranged(operation)
    ]


def train(name: str) -> Variant:
    return registry.variant("attention_train", name)


def study_problem(n: int = 2048, dtype: str = "float64") -> Problem:
    """attention_train as the study measures it."""
    return Problem.of(registry.operation("attention_train"), (2, 1, n, 64), dtype)


def one_row_and_column(variant: Variant, problem: Problem) -> Config:
    """The default with the study's tiles: a row, a column."""
    start = default_config(variant, problem, Hopper())
    assert start is not None
    config = Config({**start, **{tile: 1 for tile in ("rows", "columns") if tile in start}})
    assert violated(variant, problem, config, Hopper()) is None
    return config

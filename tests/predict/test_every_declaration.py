"""Every registered variant can be predicted at every size, empty ones too."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from test_estimate_shipped import H200

from autotune.estimate import estimate, estimate_passes
from autotune.model import Operation, Problem, Variant
from autotune.model.space import default_config, why_not
from autotune.plugins import load_plugins
from autotune.registry import registry

MACHINES = {
    "cpu": SimpleNamespace(limits={}, thread_counts=lambda: (1, 4), placements=lambda: ("free",)),
    "cuda": SimpleNamespace(limits=H200, thread_counts=lambda: (1,), placements=lambda: ("free",)),
}
SIZES = (0, 1, 48, 1024)


def problems(operation: Operation, variant: Variant) -> Iterator[Problem]:
    """All dims of a size but for one head, in the variant's dtypes."""
    for size in SIZES:
        for dtype in variant.dtypes or operation.dtypes:
            yield Problem.of(operation, sizes(operation, size), dtype)


def sizes(operation: Operation, size: int) -> dict[str, int]:
    return {dim: 1 if dim in ("H", "Hkv") else size for dim in operation.dims}


load_plugins()
OURS = [
    each
    for each in registry.operations()
    if each.reference.__module__.startswith("autotune_variants.")
]


@pytest.mark.parametrize("operation", OURS, ids=lambda each: each.name)
def test_estimates_are_finite_and_no_part_is_below_zero(operation: Operation) -> None:
    seen = 0
    for variant in registry.variants(operation):
        machine = MACHINES[variant.device]
        for problem in problems(operation, variant):
            if why_not(variant, problem, variant.device, machine.limits) is not None:
                continue
            config = default_config(variant, problem, machine)
            if config is None:
                continue
            seen += 1
            found = estimate(variant, problem, config)
            parts = [getattr(found, name) for name in type(found).__slots__]
            assert all(math.isfinite(part) and part >= 0 for part in parts), (variant, problem)
            assert found.seconds >= max(found.memory, found.arithmetic) / 2
    assert seen


@pytest.mark.parametrize("operation", OURS, ids=lambda each: each.name)
def test_more_work_takes_longer(operation: Operation) -> None:
    for variant in registry.variants(operation):
        machine, dtype = MACHINES[variant.device], (variant.dtypes or operation.dtypes)[0]
        times = []
        for size in (64, 128):
            problem = Problem.of(operation, sizes(operation, size), dtype)
            if why_not(variant, problem, variant.device, machine.limits) is None:
                config = default_config(variant, problem, machine)
                if config is not None:
                    parts = estimate_passes(variant, problem, config)
                    times.append(sum(part.roofline for _, part in parts))
        assert times == sorted(times), variant

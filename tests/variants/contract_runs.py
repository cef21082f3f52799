"""Runs a variant on one problem as the engine would, and says what is wrong with the outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
from contract_arrays import Array, Boxed, boxed

from autotune.device import local_cpu
from autotune.expected import FLOOR_ULPS as GATE_FLOOR_ULPS
from autotune.model import Config, Problem, Variant, is_deterministic
from autotune.model.space import configs
from autotune.model.traits import intermediate_shapes

# Half of the gate's: what passes here must pass there with any other seed.
FLOOR_ULPS = GATE_FLOOR_ULPS / 2


def smallest_tiles(variant: Variant, problem: Problem) -> Config:
    """The config with the most threads and, among those, the smallest tiles."""

    def size(config: Config) -> tuple[int, int]:
        numbers = [value for value in config.values() if isinstance(value, int)]
        return -int(config.get("threads", 1)), sum(numbers)

    return min(configs(variant, problem, local_cpu()), key=size)


def random_inputs(problem: Problem, scale: float, seed: int = 5) -> tuple[Array, ...]:
    """Standard-normal inputs, q and k or x times `scale`; out and lse as attention returns them.

    Where an operation has another sample, and not because of out and lse, that is what is scaled.
    """
    rng = np.random.default_rng(seed)
    operation = problem.operation
    names = [tensor.name for tensor in operation.inputs]
    if operation.sample is not None and "lse" not in names:
        drawn = operation.sample(problem, rng)
    else:
        drawn = [rng.standard_normal(tensor.shape(problem.sizes)) for tensor in operation.inputs]
    arrays = {}
    for name, values in zip(names, drawn, strict=True):
        arrays[name] = (values * (scale if name in ("q", "k", "x") else 1)).astype(problem.dtype)
    return with_forward(problem, tuple(arrays.values()))


def with_forward(problem: Problem, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    """Inputs whose out and lse, if there are any, are what attention returns for the others."""
    names = [tensor.name for tensor in problem.operation.inputs]
    if "lse" not in names:
        return inputs
    from autotune_variants.attention.reference import forward

    arrays = dict(zip(names, inputs, strict=True))
    wide = [arrays[name].astype(np.float64) for name in "qkv"]
    (factor,) = problem.scalars()
    out, lse = forward(*wide, causal=problem.flags["causal"], scale=factor)
    if out.size:
        lse[np.isnan(out).all(axis=-1)] = np.nan  # as every variant has it
    arrays["out"], arrays["lse"] = out.astype(problem.dtype), lse.astype(problem.dtype)
    return tuple(arrays.values())


def expected(problem: Problem, inputs: tuple[Array, ...]) -> list[tuple[str, Array, float]]:
    """Name, float64 reference and admissible absolute error of every output."""
    operation = problem.operation
    options = {**problem.flags, **dict(zip(operation.scalars, problem.scalars(), strict=True))}
    exact = _tuple(operation.reference(*[x.astype(np.float64) for x in inputs], **options))
    plain = _tuple(operation.plain(*[x.copy() for x in inputs], **options))
    result = []
    for tensor, right, near in zip(operation.outputs, exact, plain, strict=True):
        finite = np.isfinite(right)
        magnitude = np.abs(right[finite]).max(initial=0.0) or 1.0
        error = np.abs(near[finite] - right[finite]).max(initial=0.0)
        floor = FLOOR_ULPS * np.finfo(problem.dtype).eps * magnitude
        bound = max(operation.tolerance.get(tensor.name, 2.0) * error, floor)
        result.append((tensor.name, right, float(bound)))
    return result


def _tuple(value: Any) -> tuple[Array, ...]:
    return value if isinstance(value, tuple) else (value,)


def faults(
    variant: Variant, problem: Problem, config: Config, layout: str, scale: float = 1.0
) -> list[str]:
    """Everything the contract forbids that a run of the variant did; empty when it is right."""
    given = random_inputs(problem, scale)
    inputs = [boxed(each.shape, problem.dtype, layout, each) for each in given]
    shapes = [tensor.shape(problem.sizes) for tensor in problem.operation.outputs]
    outputs = [boxed(shape, problem.dtype, layout) for shape in shapes]
    run(variant, problem, config, [*inputs, *outputs])
    found = [f"wrote outside array {n}" for n, each in enumerate(inputs) if not each.intact()]
    found += [f"wrote outside output {n}" for n, each in enumerate(outputs) if not each.intact()]
    for each, before in zip(inputs, given, strict=True):
        if not np.array_equal(each.view, before):
            found.append("changed an input")
    for (name, right, bound), box in zip(expected(problem, given), outputs, strict=True):
        infinite = np.isinf(right)
        if not np.array_equal(box.view[infinite], right[infinite].astype(problem.dtype)):
            found.append(f"{name}: an infinity is missing")
        error = np.abs(box.view[~infinite] - right[~infinite]).max(initial=0.0)
        if not error <= bound:
            found.append(f"{name} is off by {error:.3g}, allowed {bound:.3g}")
    if is_deterministic(variant):
        again = [boxed(shape, problem.dtype, layout) for shape in shapes]
        run(variant, problem, config, [*inputs, *again])
        same = (a.view.tobytes() == b.view.tobytes() for a, b in zip(outputs, again, strict=True))
        found += [] if all(same) else ["a second run differs"]
    return found


def run(variant: Variant, problem: Problem, config: Config, arrays: list[Boxed]) -> None:
    """Build and call the variant with poisoned, guarded intermediates."""
    from numba import set_num_threads

    set_num_threads(int(config.get("threads", 1)))
    shapes = intermediate_shapes(variant, problem, config)
    temporaries = [boxed(shape, dtype, "packed", fill=np.nan) for shape, dtype in shapes]
    call = variant.build(problem, config)
    every = [*arrays, *temporaries]
    call(*[each.view for each in every], *problem.scalars())
    assert all(each.intact() for each in temporaries), "wrote outside a temporary"

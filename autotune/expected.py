"""What a candidate's outputs must be: the float64 reference, and how far off they may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.arrays import Array, array_dtype, epsilon, is_floating
from autotune.errors import AutotuneError
from autotune.inputs import Buffers

FACTOR = 2.0
"""How much worse than a plain implementation an output may be unless its operation says more."""

FLOOR_ULPS = 16.0
"""Errors up to so many units in the last place of the output's magnitude always pass.

A plain implementation can be exact by luck (small sizes, powers of two); a handful of roundings in
another order must not fail for that.
"""

SHORT_FLOOR_ULPS = 1.0
"""The same in 16 bits, where sums are wider and only what is stored is rounded."""


LOUD, LOUD_SHORT = 16.0, 8.0
"""Inputs times so many (of float16: the second) overflow what is exponentiated as it is: products
of two such numbers reach a thousand, whose exponential no dtype can hold."""

PERTURBED_ULPS = 4.0
"""By how much the inputs are moved to see how far rounding alone can carry a result."""


class GateError(AutotuneError):
    """The reference itself cannot judge: it raised, or gave the wrong arrays or NaN."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What an output must be: the reference's values, their magnitude, and the error allowed.

    `representable` tells whether the dtype can hold them, and the plain implementation got there.
    """

    name: str
    values: Array
    magnitude: float
    bound: float
    dtype: np.dtype[Any]
    representable: bool = True


def expected_outputs(buffers: Buffers, *, conditioned: bool = False) -> tuple[Expected, ...]:
    """Run reference and plain implementation; GateError if the reference cannot judge.

    The bound of an output is its tolerance times the error of the plain implementation in the
    problem's dtype, relative to the output's magnitude, as attention test suites have it.
    In float64 the reference is itself such an implementation, and comparing it with itself shows
    no error. There the plain implementation runs in float32, its error is scaled by the ratio of
    the two roundings (errors are proportional to it), and two errors more are allowed: one for the
    reference's own, one because the estimate is a single draw of another computation's largest
    error (a chain of 8192 atomic additions was seen 2% above the bound without it).

    `conditioned` adds what a few units in the last place of the inputs do to the exact result, of
    float32 for 16 bits, whose sums are that wide. Where numbers are large or elements few, the
    largest error hangs on the last digits of a few sums, and what one plain implementation happens
    to make of those says nothing of another (forward error <= condition x backward error, Higham
    2002, section 1.5).
    """
    problem = buffers.problem
    operation = problem.operation
    dtypes = [array_dtype(problem.element_type(tensor.dtype)) for tensor in operation.outputs]
    double = problem.dtype == "float64"
    scale = epsilon(np.dtype("f8")) / epsilon(np.dtype("f4")) if double else 1.0
    values, narrow = _both(buffers, np.dtype("f4") if double else None)
    moved = values
    if conditioned:
        moved = _run(buffers, operation.reference, np.dtype("f8"), moved=True)
    expected = []
    for tensor, dtype, exact, rounded, near in zip(
        operation.outputs, dtypes, values, narrow, moved, strict=True
    ):
        if bool(np.isnan(exact).any()):
            raise GateError(f"the reference of {operation.name} gives NaN in {tensor.name}.")
        magnitude = _magnitude(exact)
        unavoidable = scale * _plain_error(rounded, exact, magnitude)
        unavoidable += _plain_error(near, exact, magnitude)
        factor = operation.tolerance.get(tensor.name, FACTOR) + (2.0 if double else 0.0)
        if not is_floating(dtype):
            unavoidable = 0.0
        ulps = FLOOR_ULPS if dtype.itemsize > 2 else SHORT_FLOOR_ULPS
        bound = max(factor * unavoidable, ulps * epsilon(dtype))
        fits = _fits(exact, dtype) and bool((np.isfinite(rounded) | ~np.isfinite(exact)).all())
        expected.append(Expected(tensor.name, exact, magnitude, bound, dtype, fits))
    return tuple(expected)


def loud_gain(dtype: str) -> float:
    """What to multiply inputs by to see whether a candidate takes large numbers."""
    return LOUD_SHORT if dtype == "float16" else LOUD


def _fits(values: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a dtype can hold all finite values."""
    if not is_floating(dtype):
        return True
    with np.errstate(over="ignore"):
        return bool((np.isfinite(values.astype(dtype)) | ~np.isfinite(values)).all())


def _both(
    buffers: Buffers, narrow: np.dtype[Any] | None
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Outputs of the reference in float64, and of the plain implementation in `narrow`."""
    operation, memory = buffers.problem.operation, buffers.memory
    if not memory.concurrent:
        exact = _run(buffers, operation.reference, np.dtype("f8"))
        memory.release()
        plain = _run(buffers, operation.plain, narrow)
        memory.release()
        return exact, plain
    with ThreadPoolExecutor(2) as pool:
        wide = pool.submit(_run, buffers, operation.reference, np.dtype("f8"))
        other = pool.submit(_run, buffers, operation.plain, narrow)
        return wide.result(), other.result()


def _run(
    buffers: Buffers,
    function: Callable[..., Any],
    dtype: np.dtype[Any] | None,
    *,
    moved: bool = False,
) -> tuple[Array, ...]:
    """Outputs of reference or plain implementation on copies of the inputs, in float64."""
    problem = buffers.problem
    operation = problem.operation
    scalars: Mapping[str, Any] = dict(zip(operation.scalars, buffers.scalars, strict=True))
    inputs = [
        each.astype(dtype if dtype and is_floating(each.dtype) else each.dtype, order="C")
        for each in buffers.input_arrays
    ]
    if moved:
        inputs = _moved(inputs, buffers)
    try:
        with np.errstate(all="ignore"):
            results = function(*inputs, **problem.flags, **scalars)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise GateError(f"the reference of {operation.name} raised {why}.") from error
    results = results if isinstance(results, tuple | list) else (results,)
    shapes = [tensor.shape(problem.sizes) for tensor in operation.outputs]
    if [np.shape(each) for each in results] != shapes:
        found = ", ".join(str(np.shape(each)) for each in results)
        raise GateError(f"the reference of {operation.name} gave {found}, expected {shapes}.")
    return tuple(buffers.memory.asarray(each, np.float64) for each in results)


def _moved(inputs: list[Array], buffers: Buffers) -> list[Array]:
    """The inputs, each element off by PERTURBED_ULPS of the dtype that sums are made in."""
    rng = np.random.default_rng(buffers.seed)
    sums = array_dtype(buffers.problem.element_type("accumulator"))
    step = PERTURBED_ULPS * (epsilon(sums) if is_floating(sums) else 0.0)

    def away(array: Array) -> Array:
        signs = buffers.memory.asarray(rng.choice((-step, step), size=array.shape))
        return array * (1.0 + signs)

    return [away(each) if is_floating(each.dtype) else each for each in inputs]


def _magnitude(values: Array) -> float:
    """Largest finite magnitude; 1 for an output without one, so that errors stay absolute."""
    return largest(np.where(np.isfinite(values), np.abs(values), 0.0)) or 1.0


def _plain_error(plain: Array, values: Array, magnitude: float) -> float:
    """Error of the plain implementation where it is finite: its overflows excuse nobody's."""
    both = np.isfinite(plain) & np.isfinite(values)
    with np.errstate(invalid="ignore"):  # where both are infinite
        difference = np.where(both, np.abs(plain - values), 0.0)
    return largest(difference) / magnitude


def largest(values: Array) -> float:
    """The largest of values that are none below 0; 0 when there are none at all."""
    return float(values.max()) if values.size else 0.0

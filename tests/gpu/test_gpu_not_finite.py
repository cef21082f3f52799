"""Attention on this machine's GPU where a scale or a key is no finite number, or all is extreme."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contract import Candidate, Case, bound_to, candidates

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled")]

_SHAPE = (1, 2, 1, 150, 100, 40)
# The first queries attend nothing.
NO_SCALE = [
    replace(each, dtype=dtype)
    for each in candidates((Case.of(_SHAPE, scale=math.nan, causal=True),), ("cuda_",))
    for dtype in each.declared.dtypes or each.problem.operation.dtypes
]
INFINITE = tuple(Case.of(_SHAPE, infinite=which) for which in ("one", "either", "all"))
# An infinity splits into halves of which one is NaN, and so are a row's scores with such a key.
SPLIT = ("cuda_tf32x3", "cuda_split_half")
# Of q, k, v and grad_out; outputs stay within float32.
MAGNITUDES = tuple(
    Case.of((1, 2, 1, 150, 200, 40), gains=gains, scale=scale)
    for gains, scale in (
        ((1, 1, 1e-36, 1), None),
        ((1, 1, 1, 1e-36), None),
        ((1, 1, 1e36, 1), None),
        ((1, 1, 1, 1e36), None),
        ((1e-40, 1, 1, 1), None),
        ((5e37, 1e-39, 1, 1), None),
        ((1e37, 1, 1, 1), 1e-38),
        ((1e-10, 1e10, 1e-19, 1e-19), None),
    )
)
ABOUT = {"float64": 1e-11, "float32": 2e-5, "bfloat16": 5e-2, "float16": 1e-2}
FLUSHED = {"float32": 3e-38}  # atomic additions take 1.2e-38 for 0: one of each block of keys


def check(candidate: Candidate, device: Any, memory: Any, *, more: bool = False) -> None:
    """NaN where the float64 reference has it (or `more` than that), about its values elsewhere.

    What the gradient of a query with nothing to attend is times NaN, nobody has to agree on.
    """
    bound = bound_to(candidate, device, memory)
    problem, outputs = candidate.problem, bound()
    operation, sizes = problem.operation, problem.sizes
    wide = [each.astype("float64") for each in bound.buffers.input_arrays]
    named = dict(zip(operation.scalars, bound.buffers.scalars, strict=True))
    with np.errstate(all="ignore"):
        right = operation.reference(*wide, **problem.flags, **named)
        for tensor, output, values in zip(operation.outputs, outputs, right, strict=True):
            unattending = candidate.case.causal and tensor.name == "grad_q"
            first = max(sizes["Nq"] - sizes["Nk"], 0) if unattending else 0
            found, wanted = output.astype("float64")[:, :, first:], values[:, :, first:]
            none, right_none = np.isnan(found), np.isnan(wanted)
            lost, made = int((right_none & ~none).sum()), int((none & ~right_none).sum())
            assert not lost, f"{lost} of {wanted.size} NaN of {tensor.name} are none"
            assert more or not made, f"{made} of {wanted.size} of {tensor.name} are NaN"
            agree = none | right_none | (found == wanted)
            error = float(np.where(agree, 0.0, np.abs(found - wanted)).max())
            magnitude = float(np.where(np.isfinite(wanted), np.abs(wanted), 0.0).max())
            allowed = ABOUT[problem.dtype] * magnitude + FLUSHED.get(problem.dtype, 0.0)
            assert error <= allowed, f"{tensor.name} is off by {error}, {allowed} allowed"


@pytest.mark.parametrize("candidate", NO_SCALE, ids=str)
def test_scale_that_is_no_number(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", list(candidates(INFINITE, ("cuda_",))), ids=str)
def test_infinite_keys(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory, more=candidate.variant.startswith(SPLIT))


@pytest.mark.parametrize("candidate", list(candidates(MAGNITUDES, ("cuda_split_half",))), ids=str)
def test_halves_of_any_magnitude(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)

"""A kernel in C and in Fortran, a problem and a call for it, and what skips without a compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.model import Operation, Problem
from autotune.model.operation import parse_tensors
from autotune.native import NativeSource
from autotune.native.compilers import Language, find, missing

SCALE_C = """
#include "arrays.h"
#include "factor.h"
/* y = FACTOR * factor * x; the number of threads goes to y[0] if there are settings for that. */
void scale(const array *a, const int64_t *settings, const double *scalars)
{
    for (int64_t i = 0; i < a[0].shape[0]; i++)
        store(a[1].data + i * a[1].strides[0],
              (REAL)(FACTOR * scalars[0]) * load(a[0].data + i * a[0].strides[0]));
    if (settings[1])
        store(a[1].data, (REAL)settings[0]);
}
"""
SCALE_FORTRAN = """
module scaling
#include "arrays.inc"
#include "factor.inc"
public :: scale
contains
#include "array_rows.inc"
subroutine scale(a, settings, scalars) bind(c, name="scale")
    type(array), intent(in) :: a(2)
    integer(long), intent(in) :: settings(2)
    real(c_double), intent(in) :: scalars(1)
    real(r) :: line(a(1)%shape(1))
    call copy_row(line, a(1)%data, a(1)%strides(1), a(1)%shape(1))
    line = line * real(factor * scalars(1), r)
    if (settings(2) /= 0) line(1) = real(settings(1), r)
    call store_row(a(2)%data, a(2)%strides(1), line, a(1)%shape(1))
end subroutine scale
end module scaling
"""


def skip_without(language: Language) -> None:
    """Skip, saying what to install, where a language has no compiler."""
    lacking = missing(language)
    if lacking is None and find("gcc") is None:
        lacking = "the tests build with gcc, which is not on the PATH"
    if lacking is not None:
        pytest.skip(lacking)


PLAIN = {"optimize": "O2", "native": False}
"""The quickest build."""

SCALE = Operation(
    "native_scale",
    ("N",),
    parse_tensors("x[N]"),
    parse_tensors("y[N]"),
    reference=print,
    plain=print,
    scalars={"factor": 2.0},
)


def problem(dtype: str = "float32") -> Problem:
    """Eight numbers."""
    return Problem.of(SCALE, (8,), dtype)


def scaled(source: NativeSource, dtype: str = "float32", **config: Any) -> float:
    """What the kernel makes of 1, given the factor 2."""
    kernel = source.kernel("scale", problem(dtype), {**PLAIN, **config}, (0,))
    x, y = np.ones(8, dtype), np.zeros(8, dtype)
    kernel(x, y, 2.0)
    assert (y == y[0]).all()
    return float(y[0])

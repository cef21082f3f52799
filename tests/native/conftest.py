"""Sources to build, and what skips where a compiler is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.native import NativeSource
from autotune.native.compilers import Language, missing

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
    if lacking is not None:
        pytest.skip(lacking)


@pytest.fixture
def c_source(tmp_path: Path) -> NativeSource:
    """A kernel in C; skips without a compiler."""
    skip_without("c")
    (tmp_path / "factor.h").write_text("#define FACTOR 3\n")
    (tmp_path / "scale.c").write_text(SCALE_C)
    return NativeSource(tmp_path / "scale.c")


@pytest.fixture
def fortran_source(tmp_path: Path) -> NativeSource:
    """The same in Fortran."""
    skip_without("fortran")
    (tmp_path / "factor.inc").write_text("integer, parameter :: factor = 3\n")
    (tmp_path / "scale.f90").write_text(SCALE_FORTRAN)
    return NativeSource(tmp_path / "scale.f90")

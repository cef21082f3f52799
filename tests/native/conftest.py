"""Sources to build."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_scale import SCALE_C, SCALE_FORTRAN, skip_without

from autotune.native import NativeSource


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

"""Powers of two that bring tensors of any magnitude into float16's range; no GPU needed."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulate import HERE, compiler

from autotune_variants.attention.cuda.wgmma_variants import SPLIT

_DRIVER = """
extern "C" int shift_of_top(float top) { return shift_for(top); }
extern "C" int norm_of(float square, int shift) { return norm_for(square, shift); }
extern "C" float scaled_by(float x, int e) { return scaled(x, e); }
extern "C" void factor(double x, float* two) {
  const Factor f = factor_of(x);
  two[0] = f.near, two[1] = f.rest;
}
"""
SMALLEST, LARGEST = 1e-45, float(np.finfo(np.float32).max)
TOPS = (SMALLEST, 1e-40, 1.2e-38, 1e-30, 2.0**-91, 1.0, 3.0, 1e30, 1.7e38, LARGEST)


@pytest.fixture(scope="module")
def powers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """powers.cuh on the host."""
    folder = tmp_path_factory.mktemp("powers")
    source = SPLIT.path.with_name("powers.cuh")
    parts = [f'#include "{HERE / "warp.h"}"', f'#include "{source}"', _DRIVER]
    (folder / "driver.cpp").write_text("\n".join(parts))
    command = [compiler(), "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*command, "driver.cpp", "-o", "powers.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(Path(folder) / "powers.so"))
    library.shift_of_top.argtypes = [ctypes.c_float]
    library.norm_of.argtypes = [ctypes.c_float, ctypes.c_int]
    library.scaled_by.argtypes = [ctypes.c_float, ctypes.c_int]
    library.scaled_by.restype = ctypes.c_float
    library.factor.argtypes = [ctypes.c_double, ctypes.c_void_p]
    return library


@pytest.mark.parametrize("top", TOPS)
def test_the_largest_is_scaled_to_the_top_and_back(powers: ctypes.CDLL, top: float) -> None:
    exact, shift = float(np.float32(top)), powers.shift_of_top(top)
    there = powers.scaled_by(top, shift)
    assert there == np.ldexp(exact, shift)
    assert 2**13 <= there < 2**14
    assert powers.scaled_by(there, -shift) == exact


def test_nothing_is_not_scaled(powers: ctypes.CDLL) -> None:
    assert powers.shift_of_top(0.0) == 0


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("count", [1, 40, 64])
def test_scaled_rows_are_within_their_norm(powers: ctypes.CDLL, top: float, count: int) -> None:
    with np.errstate(over="ignore"):
        square = np.float32(count) * np.float32(top) ** 2
    shift = powers.shift_of_top(top)
    norm = powers.norm_of(square, shift)
    assert np.sqrt(count) * np.ldexp(float(np.float32(top)), shift) < 2.0**norm <= 2.0**17


@pytest.mark.parametrize("exponent", [-252, -200, -127, -126, -1, 0, 60, 126, 127, 150, 253])
@pytest.mark.parametrize("part", [1.0, -1.5, 1 - 2.0**-20])
def test_a_factor_is_two_normal_numbers(powers: ctypes.CDLL, exponent: int, part: float) -> None:
    two = np.empty(2, np.float32)
    powers.factor(float(np.ldexp(part, exponent)), two.ctypes.data)
    assert (np.isfinite(two) & (np.abs(two) >= np.finfo(np.float32).tiny / 2)).all()
    assert (two[1] == 1) == (-126 <= exponent - (abs(part) < 1) <= 126)
    assert np.ldexp(float(two[0]), int(np.log2(two[1]))) == np.ldexp(part, exponent)


@pytest.mark.parametrize("x", [0.0, np.nan, np.inf])
def test_factors_that_are_no_power(powers: ctypes.CDLL, x: float) -> None:
    two = np.empty(2, np.float32)
    powers.factor(x, two.ctypes.data)
    np.testing.assert_equal(two[0], np.float32(x))

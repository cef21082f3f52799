"""What the tiled kernels share: copies of rows and columns, sums of products; any strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.lib.stride_tricks import as_strided

from autotune_variants.attention.tiled_rows import (
    copy_columns,
    copy_rows,
    has_rows,
    row_products,
    store_rows,
)

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
FIRST = 3


STRIDED, PACKED, LINE = "{0}[:,:,:,:]", "{0}[:,::1]", "{0}[::1]"


def of(*arguments: str) -> list[str]:
    """Signatures for float32 and float64: compiled once for all strides, as in the kernels."""
    return [f"({', '.join(arguments)})".format(kind) for kind in ("float32", "float64")]


@njit(of(STRIDED, "int64", PACKED, PACKED))
def copied(source: Any, count: int, rows: Any, columns: Any) -> bool:
    """Entry for what only kernels can call; says whether BLAS could read the rows."""
    copy_rows(source, 1, 0, FIRST, count, rows)
    copy_columns(source, 1, 0, FIRST, count, columns)
    return bool(has_rows(source))


@njit(of(STRIDED, "int64", PACKED))
def stored(target: Any, count: int, rows: Any) -> None:
    """Entry for `store_rows`."""
    store_rows(target, 1, 0, FIRST, count, rows)


@njit(of(STRIDED, STRIDED, "int64", LINE))
def summed(x: Any, y: Any, count: int, sums: Any) -> None:
    """Entry for `row_products`."""
    row_products(x, y, (1, 0, FIRST, count), sums)


def layouts(dtype: str, width: int) -> dict[str, tuple[Array, bool]]:
    """Arrays (2, 1, 40, width) by name, and whether their rows can be read in place."""
    base = RNG.standard_normal((2, 1, 40, 2 * width + 1)).astype(dtype)
    turned = np.ascontiguousarray(base[..., :width].swapaxes(2, 3)).swapaxes(2, 3)
    repeated = as_strided(base, (2, 1, 40, width), (*base.strides[:2], 0, base.itemsize))
    return {
        "packed": (np.ascontiguousarray(base[..., :width]), True),
        "part of wider rows": (base[..., 1 : width + 1], True),
        "every other element": (base[..., : 2 * width : 2], width == 1),
        "columns": (turned, False),
        "rows backwards": (base[:, :, ::-1, :width], False),
        "one row for all": (repeated, False),
    }


@DTYPES
@pytest.mark.parametrize("width", [1, 7, 16, 40, 64])
def test_copies_of_rows_and_columns(dtype: str, width: int) -> None:
    for name, (source, readable) in layouts(dtype, width).items():
        for count in (1, 8, 17, 35):
            right = source[1, 0, FIRST : FIRST + count]
            rows = np.full((count + 1, width), 7, dtype)
            columns = np.full((width, 48), 7, dtype)
            assert copied(source, count, rows, columns) == readable or name == "columns"
            assert (rows[:count] == right).all(), name
            assert (columns[:, :count] == right.T).all(), name
            assert (rows[count:] == 7).all(), name
            assert (columns[:, count:] == 7).all(), name


@DTYPES
def test_rows_are_stored_where_they_belong_and_nowhere_else(dtype: str) -> None:
    for name, (target, _) in layouts(dtype, 40).items():
        if target.strides[2] == 0:
            continue  # there is no telling which row would stay
        before, rows = target.copy(), RNG.standard_normal((17, 40)).astype(dtype)
        stored(target, 17, rows)
        expected = before
        expected[1, 0, FIRST : FIRST + 17] = rows
        assert (target == expected).all(), name


@DTYPES
def test_sums_of_products(dtype: str) -> None:
    for left_name, (x, _) in layouts(dtype, 40).items():
        for right_name, (y, _) in layouts(dtype, 40).items():
            sums = np.full(20, 7, dtype)
            summed(x, y, 17, sums)
            products = x[1, 0].astype(float) * y[1, 0].astype(float)
            right = products[FIRST : FIRST + 17].sum(axis=1)
            bound = 40 * np.finfo(dtype).eps * np.abs(products).max()
            assert np.abs(sums[:17] - right).max() <= bound, (left_name, right_name)
            assert (sums[17:] == 7).all()

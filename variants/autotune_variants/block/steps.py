"""The step of a matrix product on the threads that the parts of a block use as well.

For `run_steps`: see attention/tiled_table.py. a, b and c are entered as X, WEIGHT and OUT.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.tiled_rows import rows as rows_at
from autotune_variants.attention.tiled_table import STEP, entry, strided
from autotune_variants.fastmath import INNER
from autotune_variants.gemm import multiply, multiply_transposed
from autotune_variants.norm.steps import share
from autotune_variants.norm.table import FLAGS, GEMM, OUT, SETTINGS, WEIGHT, WORKERS, X

TRANSPOSED = 1
_ROWS, _COLUMNS = 64, 128  # of a tile of c: with 256 terms of a and b it fits a second-level cache
_TERMS = 256  # added up in one chain; whole sums are added to each other


@njit(**INNER)
def product_tile(table: Any, place: Any, size: Any) -> Any:
    """The tile of c at `place` (row, column), of `size` rows and columns."""
    a, b, c = strided(table, X), strided(table, WEIGHT), strided(table, OUT)
    gemm, turned = entry(table, SETTINGS, GEMM), entry(table, SETTINGS, FLAGS) & TRANSPOSED
    one, zero = c.dtype.type(1), c.dtype.type(0)
    target, step = rows_at(c, 0, 0, place[0])
    target += place[1] * c.itemsize
    terms = b.shape[2]
    for done in range(0, max(terms, 1), _TERMS):
        some = min(terms - done, _TERMS)
        beta = zero if done == 0 else one
        right, right_step = rows_at(b, 0, 0, done)
        right += place[1] * b.itemsize
        left, left_step = rows_at(a, 0, 0, done if turned else place[0])
        left += (place[0] if turned else done) * a.itemsize
        sizes = (size[0], size[1], some)
        operands = ((left, left_step), (right, right_step), (target, step))
        if turned:
            multiply_transposed(gemm, sizes, one, operands[0], operands[1], beta, operands[2])
        else:
            multiply(gemm, sizes, one, operands[0], operands[1], beta, operands[2])


@njit(**STEP)
def product_step(w: Any, table: Any) -> Any:
    """c = a b on the rows of worker `w`, or c = a^T b on its columns."""
    c, workers = strided(table, OUT), entry(table, SETTINGS, WORKERS)
    height, width = c.shape[2], c.shape[3]
    top, bottom, left, right = 0, height, 0, width
    if entry(table, SETTINGS, FLAGS) & TRANSPOSED:
        left, right = share(width, 64 // c.itemsize, w, workers)
    else:
        top, bottom = share(height, _ROWS, w, workers)
    for i in range(top, bottom, _ROWS):
        for j in range(left, right, _COLUMNS):
            size = (min(bottom - i, _ROWS), min(right - j, _COLUMNS))
            product_tile(table, (i, j), size)

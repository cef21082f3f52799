"""Steps of the gated MLP that sweep over whole arrays: activations, and sums of copies.

For `run_steps`: see attention/tiled_table.py.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.tiled_rows import rows as rows_at
from autotune_variants.attention.tiled_table import STEP, contiguous, entry, strided
from autotune_variants.fastmath import INNER
from autotune_variants.mlp.kernels import gate, gate_gradients
from autotune_variants.norm.steps import share
from autotune_variants.norm.table import (
    GRAD_DOWN,
    GRAD_GATE,
    GRAD_H,
    GRAD_UP,
    PARTS,
    SETTINGS,
    WORKERS,
    U,
    V,
)

_LINES = 16  # rows of parts that are summed side by side: a cache line of a transposed gradient


@njit(**INNER)
def sum_transposed(target: Any, parts: Any, offset: Any, first: Any, last: Any) -> Any:
    """target[:, f] = the sum of row offset + f of all parts, for f from first to last."""
    for d in range(target.shape[2]):
        for f in range(first, last):
            total = target.dtype.type(0)
            for split in range(parts.shape[1]):
                total += parts[0, split, offset + f, d]
            target[0, 0, d, f] = total


@njit(**STEP)
def sum_step(w: Any, table: Any) -> Any:
    """The gradients of the weights on the share of hidden features of worker `w`."""
    parts, workers = strided(table, PARTS), entry(table, SETTINGS, WORKERS)
    down, f = strided(table, GRAD_DOWN), parts.shape[2] // 3
    begin, stop = share(f, _LINES, w, workers)
    for first in range(begin, stop, _LINES):
        last = min(first + _LINES, stop)
        sum_transposed(strided(table, GRAD_GATE), parts, 0, first, last)
        sum_transposed(strided(table, GRAD_UP), parts, f, first, last)
        for row in range(first, last):
            for d in range(down.shape[3]):
                total = down.dtype.type(0)
                for split in range(parts.shape[1]):
                    total += parts[0, split, 2 * f + row, d]
                down[0, 0, row, d] = total


@njit(**STEP)
def gate_step(w: Any, table: Any) -> Any:
    """u becomes the hidden activations, on the share of tokens of worker `w`."""
    u, v = strided(table, U), strided(table, V)
    begin, stop = share(u.shape[2], 1, w, entry(table, SETTINGS, WORKERS))
    size = (stop - begin, u.shape[3])
    gate(_in_place(u, begin, stop), _in_place(v, begin, stop), size)


@njit(**STEP)
def gate_gradients_step(w: Any, table: Any) -> Any:
    """u and v become their gradients, grad_h the hidden activations, on the share of worker `w`."""
    u, v, grad_h = strided(table, U), strided(table, V), strided(table, GRAD_H)
    begin, stop = share(u.shape[2], 1, w, entry(table, SETTINGS, WORKERS))
    size = (stop - begin, u.shape[3])
    tiles = (_in_place(u, begin, stop), _in_place(v, begin, stop), _in_place(grad_h, begin, stop))
    gate_gradients(tiles[0], tiles[1], tiles[2], size)


@njit(**INNER)
def _in_place(array: Any, first: Any, last: Any) -> Any:
    """Rows of a temporary as a matrix, as wide as its rows are apart."""
    address, step = rows_at(array, 0, 0, first)
    return contiguous(array, address, last - first, step)

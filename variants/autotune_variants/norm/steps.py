"""Steps of the normalisation by tiles of tokens, for `run_steps`: see attention/tiled_table.py."""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.tiled_rows import (
    carve,
    copy_rows,
    fill,
    has_rows,
    in_place,
    store_rows,
)
from autotune_variants.attention.tiled_rows import rows as rows_at
from autotune_variants.attention.tiled_table import STEP, contiguous, entry, number, strided
from autotune_variants.fastmath import INNER
from autotune_variants.norm.kernels import inverse_rms, norm_gradients, normalise
from autotune_variants.norm.table import (
    EPS,
    GRAD_OUT,
    GRAD_WEIGHT,
    GRAD_X,
    OUT,
    ROWS,
    SCRATCH,
    SETTINGS,
    WEIGHT,
    WEIGHT_PARTS,
    WORKERS,
    X,
)


@njit(**INNER)
def rows_of(source: Any, first: Any, count: Any, spare: Any) -> Any:
    """Rows of an array (1,1,N,D) as a C-contiguous matrix: in place, or copied to `spare`."""
    if has_rows(source):
        return in_place(source, 0, 0, first, count)
    copy_rows(source, 0, 0, first, count, spare)
    return spare


@njit(**INNER)
def share(tokens: Any, rows: Any, part: Any, parts: Any) -> Any:
    """First and last token of one of `parts` equal shares of the tiles of `rows` tokens."""
    tiles = -(-tokens // rows)
    first, last = part * tiles // parts, (part + 1) * tiles // parts
    return min(first * rows, tokens), min(last * rows, tokens)


@njit(**INNER)
def own_scratch(table: Any, w: Any) -> Any:
    """Address of the scratch memory of worker `w`."""
    return entry(table, SCRATCH, 0) + w * entry(table, SCRATCH, 7)


@njit(**STEP)
def forward_step(w: Any, table: Any) -> Any:
    """Out of the tokens that worker `w` owns."""
    x, weight, out = strided(table, X), strided(table, WEIGHT), strided(table, OUT)
    rows, workers = entry(table, SETTINGS, ROWS), entry(table, SETTINGS, WORKERS)
    eps, tokens, d = number(table, SETTINGS, EPS), x.shape[2], x.shape[3]
    spare, end = carve(table, own_scratch(table, w), rows, d)
    result, end = carve(table, end, rows, d)
    lines, end = carve(table, end, 1, d)
    inverse, end = carve(table, end, 1, rows)
    copy_rows(weight, 0, 0, 0, 1, lines)
    begin, stop = share(tokens, rows, w, workers)
    for first in range(begin, stop, rows):
        count = min(rows, stop - first)
        size = (count, d)
        tile = rows_of(x, first, count, spare)
        inverse_rms(tile, size, eps, inverse[0])
        if has_rows(out):
            normalise(tile, size, lines[0], inverse[0], in_place(out, 0, 0, first, count))
        else:
            normalise(tile, size, lines[0], inverse[0], result)
            store_rows(out, 0, 0, first, count, result)


@njit(**STEP)
def backward_step(w: Any, table: Any) -> Any:
    """grad_x of the tokens that worker `w` owns, and its part of grad_weight."""
    x, weight, grad_out = strided(table, X), strided(table, WEIGHT), strided(table, GRAD_OUT)
    grad_x, parts = strided(table, GRAD_X), strided(table, WEIGHT_PARTS)
    rows, workers = entry(table, SETTINGS, ROWS), entry(table, SETTINGS, WORKERS)
    eps, tokens, d = number(table, SETTINGS, EPS), x.shape[2], x.shape[3]
    spare, end = carve(table, own_scratch(table, w), rows, d)
    above_spare, end = carve(table, end, rows, d)
    result, end = carve(table, end, rows, d)
    lines, end = carve(table, end, 1, d)
    inverse, end = carve(table, end, 1, rows)
    copy_rows(weight, 0, 0, 0, 1, lines)
    sums = contiguous(parts, rows_at(parts, 0, 0, 2 * w)[0], 2, d)
    fill(sums, sums.dtype.type(0))
    begin, stop = share(tokens, rows, w, workers)
    for first in range(begin, stop, rows):
        count = min(rows, stop - first)
        tile, above = rows_of(x, first, count, spare), rows_of(grad_out, first, count, above_spare)
        size = (count, d)
        inverse_rms(tile, size, eps, inverse[0])
        norm_gradients(tile, above, size, lines[0], inverse[0], result, sums)
        store_rows(grad_x, 0, 0, first, count, result)


@njit(**STEP)
def weight_step(w: Any, table: Any) -> Any:
    """grad_weight on the share of features of worker `w`, from the parts in their order."""
    grad, parts = strided(table, GRAD_WEIGHT), strided(table, WEIGHT_PARTS)
    workers, d = entry(table, SETTINGS, WORKERS), grad.shape[3]
    for j in range(w * d // workers, (w + 1) * d // workers):
        total = grad.dtype.type(0)
        for part in range(parts.shape[2] // 2):
            total += parts[0, 0, 2 * part, j]
        grad[0, 0, 0, j] = total

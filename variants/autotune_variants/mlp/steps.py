"""Steps of the gated MLP by tiles of tokens: everything about a tile while it is in cache.

A tile of `rows` tokens meets the weights `hidden` of their F features at a time. Its hidden
activations never leave the cache. For `run_steps`: see attention/tiled_table.py.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.tiled_rows import (
    carve,
    copy_rows,
    fill,
    has_rows,
    matrix,
    rows_or_copy,
    store_rows,
)
from autotune_variants.attention.tiled_rows import rows as rows_at
from autotune_variants.attention.tiled_table import STEP, contiguous, entry, number, strided
from autotune_variants.fastmath import INNER
from autotune_variants.gemm import multiply, multiply_transposed
from autotune_variants.mlp.kernels import gate, gate_gradients, product, transposed_product
from autotune_variants.norm.kernels import inverse_rms, norm_gradients, normalise
from autotune_variants.norm.steps import own_scratch, rows_of, share
from autotune_variants.norm.table import (
    EPS,
    FLAGS,
    GEMM,
    GRAD_OUT,
    GRAD_X,
    HIDDEN,
    NORM,
    OUT,
    PARTS,
    RESIDUAL,
    ROWS,
    SETTINGS,
    SPLITS,
    W_DOWN,
    W_GATE,
    W_UP,
    WEIGHT,
    WEIGHT_PARTS,
    WITH_OUT,
    WORKERS,
    X,
)


@njit(**INNER)
def columns_at(array: Any, first: Any, count: Any, spare: Any) -> Any:
    """Columns of a matrix (1,1,D,F) as BLAS takes them: in place, or copied to `spare`."""
    if has_rows(array):
        address, step = rows_at(array, 0, 0, 0)
        return address + first * array.itemsize, step
    for d in range(array.shape[2]):
        for f in range(count):
            spare[d, f] = array[0, 0, d, first + f]
    return matrix(spare)


@njit(**INNER)
def weight_scratch(table: Any, address: Any, d: Any, hidden: Any) -> Any:
    """Room for blocks of weights that BLAS cannot read in place; where the next may start."""
    gate_block, end = carve(table, address, d, hidden)
    up_block, end = carve(table, end, d, hidden)
    down_block, end = carve(table, end, hidden, d)
    return (gate_block, up_block, down_block), end


@njit(**INNER)
def add_tile(target: Any, source: Any, count: Any) -> Any:
    """target += source, for `count` rows."""
    for i in range(count):
        for j in range(source.shape[1]):
            target[i, j] += source[i, j]


@njit(**STEP)
def forward_step(w: Any, table: Any) -> Any:
    """Out of the tokens that worker `w` owns."""
    x, out, weight = strided(table, X), strided(table, OUT), strided(table, WEIGHT)
    w_gate, w_up, w_down = strided(table, W_GATE), strided(table, W_UP), strided(table, W_DOWN)
    gemm, flags = entry(table, SETTINGS, GEMM), entry(table, SETTINGS, FLAGS)
    rows, hidden = entry(table, SETTINGS, ROWS), entry(table, SETTINGS, HIDDEN)
    tokens, d, f = x.shape[2], x.shape[3], w_down.shape[2]
    given, end = carve(table, own_scratch(table, w), rows, d)
    z, end = carve(table, end, rows, d)
    result, end = carve(table, end, rows, d)
    u, end = carve(table, end, rows, hidden)
    v, end = carve(table, end, rows, hidden)
    line, end = carve(table, end, 1, d)
    inverse, end = carve(table, end, 1, rows)
    spare, end = weight_scratch(table, end, d, hidden)
    if flags & NORM:
        copy_rows(weight, 0, 0, 0, 1, line)
    one = u.dtype.type(1)
    begin, stop = share(tokens, rows, w, entry(table, SETTINGS, WORKERS))
    for first in range(begin, stop, rows):
        count = min(rows, stop - first)
        tile = rows_of(x, first, count, given)
        if flags & NORM:
            inverse_rms(tile, (count, d), number(table, SETTINGS, EPS), inverse[0])
            normalise(tile, (count, d), line[0], inverse[0], z)
        left = matrix(z) if flags & NORM else matrix(tile)
        fill(result, result.dtype.type(0))
        for begun in range(0, f, hidden):
            some = min(hidden, f - begun)
            size = (count, some, d)
            product(gemm, size, left, columns_at(w_gate, begun, some, spare[0]), u)
            product(gemm, size, left, columns_at(w_up, begun, some, spare[1]), v)
            gate(u, v, (count, some))
            down = rows_or_copy(w_down, 0, 0, begun, some, spare[2])
            multiply(gemm, (count, d, some), one, matrix(u), down, one, matrix(result))
        if flags & RESIDUAL:
            for i in range(count):
                for j in range(d):
                    result[i, j] += tile[i, j]
        store_rows(out, 0, 0, first, count, result)


@njit(**INNER)
def tile_scratch(table: Any, w: Any) -> Any:
    """Matrices of worker `w` for the gradients of a tile.

    Made anew by each function that needs them: numba counts references for every array it passes.
    """
    rows, hidden = entry(table, SETTINGS, ROWS), entry(table, SETTINGS, HIDDEN)
    d = entry(table, X, 4)
    given, end = carve(table, own_scratch(table, w), rows, d)
    z, end = carve(table, end, rows, d)
    above, end = carve(table, end, rows, d)
    result, end = carve(table, end, rows, d)
    z_columns, end = carve(table, end, d, rows)
    above_columns, end = carve(table, end, d, rows)
    out_columns, end = carve(table, end, d, rows)
    grad_columns, end = carve(table, end, d, rows)
    u, end = carve(table, end, hidden, rows)
    v, end = carve(table, end, hidden, rows)
    grad_h, end = carve(table, end, hidden, rows)
    line, end = carve(table, end, 1, d)
    inverse, end = carve(table, end, 1, rows)
    spare, end = weight_scratch(table, end, d, hidden)
    tiles = (given, z, above, result)
    columns = (z_columns, above_columns, out_columns, grad_columns)
    return tiles, columns, (u, v, grad_h), line, inverse, spare


@njit(**INNER)
def as_columns(source: Any, count: Any, target: Any) -> Any:
    """target[j, i] = source[i, j] for `count` rows."""
    for j in range(source.shape[1]):
        for i in range(count):
            target[j, i] = source[i, j]


@njit(**INNER)
def tile_products(table: Any, w: Any, count: Any, parts: Any) -> Any:
    """Products of one tile with all weights; `parts` are the addresses of the three sums (F,D).

    Leaves out and the gradient of the tile in its columns; adds to the sums.
    """
    gemm, flags = entry(table, SETTINGS, GEMM), entry(table, SETTINGS, FLAGS)
    tiles, columns, hidden_tiles, _, _, spare = tile_scratch(table, w)
    z = matrix(tiles[1]) if flags & NORM else matrix(tiles[0])
    z_columns, above_columns, out_columns, grad_columns = columns
    u, v, grad_h = hidden_tiles
    w_gate, w_up, w_down = strided(table, W_GATE), strided(table, W_UP), strided(table, W_DOWN)
    d, f, hidden = w_down.shape[3], w_down.shape[2], u.shape[0]
    one = u.dtype.type(1)
    fill(out_columns, u.dtype.type(0))
    fill(grad_columns, u.dtype.type(0))
    for begun in range(0, f, hidden):
        some = min(hidden, f - begun)
        size = (some, count, d)
        gate_block = columns_at(w_gate, begun, some, spare[0])
        up_block = columns_at(w_up, begun, some, spare[1])
        down = rows_or_copy(w_down, 0, 0, begun, some, spare[2])
        transposed_product(gemm, size, gate_block, matrix(z_columns), u)
        transposed_product(gemm, size, up_block, matrix(z_columns), v)
        product(gemm, size, down, matrix(above_columns), grad_h)
        gate_gradients(u, v, grad_h, (some, count))
        size = (d, count, some)
        if flags & WITH_OUT:
            target = matrix(out_columns)
            multiply_transposed(gemm, size, one, down, matrix(grad_h), one, target)
        multiply(gemm, size, one, gate_block, matrix(u), one, matrix(grad_columns))
        multiply(gemm, size, one, up_block, matrix(v), one, matrix(grad_columns))
        size, offset = (some, d, count), begun * d * u.itemsize
        multiply(gemm, size, one, matrix(u), z, one, (parts[0] + offset, d))
        multiply(gemm, size, one, matrix(v), z, one, (parts[1] + offset, d))
        multiply(gemm, size, one, matrix(grad_h), matrix(tiles[2]), one, (parts[2] + offset, d))


@njit(**INNER)
def gradient_tile(table: Any, w: Any, first: Any, count: Any, parts: Any, sums: Any) -> Any:
    """Everything about one tile of tokens: out where it is wanted, grad_x, and sums over tokens."""
    x, grad_out = strided(table, X), strided(table, GRAD_OUT)
    tiles, columns, _, line, inverse, _ = tile_scratch(table, w)
    given, normal, above, result = tiles
    flags, size = entry(table, SETTINGS, FLAGS), (count, x.shape[3])
    copy_rows(x, 0, 0, first, count, given)
    copy_rows(grad_out, 0, 0, first, count, above)
    z = given
    if flags & NORM:
        inverse_rms(given, size, number(table, SETTINGS, EPS), inverse[0])
        normalise(given, size, line[0], inverse[0], normal)
        z = normal
    for source, target in ((z, columns[0]), (above, columns[1])):
        as_columns(source, count, target)
    tile_products(table, w, count, parts)
    if flags & WITH_OUT:
        as_columns(columns[2], size[1], result)
        if flags & RESIDUAL:
            add_tile(result, given, count)
        store_rows(strided(table, OUT), 0, 0, first, count, result)
    as_columns(columns[3], size[1], result)
    if flags & NORM:
        norm_gradients(given, result, size, line[0], inverse[0], result, sums)
    if flags & RESIDUAL:
        add_tile(result, above, count)
    store_rows(strided(table, GRAD_X), 0, 0, first, count, result)


@njit(**STEP)
def gradient_step(w: Any, table: Any) -> Any:
    """The shares of the tokens that fall to worker `w`, each with sums over tokens of its own."""
    rows = entry(table, SETTINGS, ROWS)
    splits, workers = entry(table, SETTINGS, SPLITS), entry(table, SETTINGS, WORKERS)
    parts, weight_parts = strided(table, PARTS), strided(table, WEIGHT_PARTS)
    tokens, d = entry(table, X, 3), entry(table, X, 4)
    f = parts.shape[2] // 3
    if entry(table, SETTINGS, FLAGS) & NORM:
        copy_rows(strided(table, WEIGHT), 0, 0, 0, 1, tile_scratch(table, w)[3])
    for split in range(w, splits, workers):
        place = rows_at(parts, 0, split, 0)[0]
        own = contiguous(parts, place, 3 * f, d)
        fill(own, own.dtype.type(0))
        sums = contiguous(parts, rows_at(weight_parts, 0, 0, 2 * split)[0], 2, d)
        if entry(table, SETTINGS, FLAGS) & NORM:
            fill(sums, sums.dtype.type(0))
        step = f * d * own.itemsize
        begin, stop = share(tokens, rows, split, splits)
        for first in range(begin, stop, rows):
            places = (place, place + step, place + 2 * step)
            gradient_tile(table, w, first, min(rows, stop - first), places, sums)

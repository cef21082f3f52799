"""The table that the steps of normalisation and gated MLP read: its rows, and how it is filled.

Arrays are entered with four dims, (1,1,N,D), so that what attention's tiles use fits them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotune_variants.attention.tiled_table import describe, run_steps, step_address

# Rows of the table; row 0 holds the settings.
SETTINGS, X, WEIGHT, GRAD_OUT, OUT, GRAD_X, GRAD_WEIGHT, WEIGHT_PARTS, SCRATCH = range(9)
W_GATE, W_UP, W_DOWN, GRAD_GATE, GRAD_UP, GRAD_DOWN, PARTS, U, V, GRAD_H = range(9, 19)
_ROWS, _WIDTH = 19, 9
# Columns of row 0: address of gemm, tokens and hidden features of a tile, workers, flags, eps,
# shares of the tokens.
GEMM, ROWS, HIDDEN, WORKERS, FLAGS, EPS, SPLITS = range(7)
# Flags: x is normalised first, x is added at the end, the output is wanted beside the gradients.
NORM, RESIDUAL, WITH_OUT = 1, 2, 4


def bind(
    steps: Sequence[Any],
    dtype: str,
    settings: Mapping[int, int],
    rows: Sequence[int],
    *,
    scalars: Sequence[int] = (),
) -> Callable[..., None]:
    """`run(*arrays, *scalars)`: the steps in order, on the arrays entered in the table's rows.

    `settings` and `scalars` say which column of row 0 gets which whole number, and which gets
    the scalars of the call. Arrays have one to three dims.
    """
    addresses = np.array([step_address(step, dtype) for step in steps], np.int64)
    template = np.zeros((_ROWS, _WIDTH), np.int64)
    for column, value in settings.items():
        template[SETTINGS, column] = value
    workers, count = int(settings[WORKERS]), len(rows)

    def run(*arguments: Any) -> None:
        table = template.copy()
        for row, array in zip(rows, arguments[:count], strict=True):
            describe(table, row, array[(None,) * (4 - array.ndim)])
        for column, value in zip(scalars, arguments[count:], strict=True):
            table.view(np.float64)[SETTINGS, column] = value
        run_steps(addresses, workers, table)

    return run

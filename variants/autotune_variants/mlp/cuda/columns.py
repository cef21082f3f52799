"""Weights side by side as one matrix, so that products with each of them are one product."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.cuda import CudaSource

SOURCE = CudaSource(Path(__file__).parent / "columns.cu")

_THREADS = 256
_PARTS = 3


def columns(
    entry: str, itemsize: int, rows: int, widths: Sequence[int]
) -> Callable[[Sequence[int]], None]:
    """`move(addresses)` of the joined matrix and of up to three parts of so many columns.

    `entry` is join or part: from the parts, or to them. All are packed, of elements of `itemsize`
    bytes.
    """
    launch = SOURCE.kernel(entry, {"BYTES": itemsize}).launcher(
        grid=(-(-rows * sum(widths) // _THREADS), 1, 1), block=(_THREADS, 1, 1), arguments="S64"
    )
    missing = (0,) * (_PARTS - len(widths))
    pack = struct.Struct("<4Q4q").pack
    return lambda addresses: launch(pack(*addresses, *missing, rows, *widths, *missing))

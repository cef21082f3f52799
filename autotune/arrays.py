"""Arrays as kernels like them: on a cache line, in a layout, and between guard values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector register of current CPUs."""

GUARD_BYTES = 256
_GUARD = 0xA5


def empty_aligned(shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
    """An uninitialised C-contiguous array whose data starts on a cache line."""
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(kind).reshape(shape)


@dataclass(frozen=True, slots=True)
class Guarded:
    """An array with guard bytes before it, behind it and in the gaps of its layout."""

    array: Array
    _edges: tuple[Array, ...]

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: npt.DTypeLike, *, strided: bool = False) -> Guarded:
        """An uninitialised array, aligned to a cache line; see `strided_like` for the layout."""
        kind = np.dtype(dtype)
        store, order = _storage(tuple(shape)) if strided else (tuple(shape), None)
        nbytes = math.prod(store) * kind.itemsize
        raw = empty_aligned((nbytes + 2 * GUARD_BYTES,), np.uint8)
        edges = [raw[:GUARD_BYTES], raw[GUARD_BYTES + nbytes :]]
        stored = raw[GUARD_BYTES : GUARD_BYTES + nbytes].view(kind).reshape(store)
        if order is None:
            array = stored
        elif len(shape) == 1:
            array = stored[:, 0]
            edges.append(stored[:, 1:].view(np.uint8))
        else:
            array = stored.transpose(order)
        for edge in edges:
            edge[...] = _GUARD
        return cls(array, tuple(edges))

    def intact(self) -> bool:
        """Whether every guard byte is as it was."""
        return all(bool((edge == _GUARD).all()) for edge in self._edges)


def _storage(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Shape in memory and the transposition that turns it into `shape`.

    Four dims (B, H, N, D) are stored as (B, N, H, D), as projections leave them; a matrix is
    stored transposed; a vector takes every second element.
    """
    if not shape:
        return shape, None
    if len(shape) == 1:
        return (shape[0], 2), (0,)
    order = list(range(len(shape)))
    first = max(len(shape) - 3, 0)
    order[first], order[first + 1] = order[first + 1], order[first]
    return tuple(shape[axis] for axis in order), tuple(order)


def poison(array: Array) -> None:
    """Overwrite an output so that what a kernel leaves unwritten shows: NaN, or the largest int."""
    if np.issubdtype(array.dtype, np.inexact):
        array[...] = np.nan
    elif np.issubdtype(array.dtype, np.integer):
        array[...] = np.iinfo(array.dtype).max
    else:
        array[...] = True

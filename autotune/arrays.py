"""Arrays as kernels like them: on a cache line, in a layout, and between guard values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.errors import UserError

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


def empty_bytes(nbytes: int) -> Array:
    """Uninitialised bytes from a cache line on."""
    return empty_aligned((nbytes,), np.uint8)


def array_dtype(name: npt.DTypeLike) -> np.dtype[Any]:
    """A dtype by name, bfloat16 included; UserError where that is not installed."""
    if str(name) == "bfloat16":
        try:
            import_module("ml_dtypes")  # registers the name
        except ImportError:
            raise UserError("bfloat16 needs ml_dtypes: pip install ml_dtypes.") from None
    return np.dtype(name)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype can hold NaN; NumPy does not count bfloat16 among its own."""
    return np.issubdtype(dtype, np.inexact) or dtype.name == "bfloat16"


def epsilon(dtype: np.dtype[Any]) -> float:
    """Distance from 1 to the next number; 0 for integers."""
    if dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(dtype).eps) if np.issubdtype(dtype, np.floating) else 0.0


@dataclass(frozen=True, slots=True)
class Guarded:
    """An array with guard bytes before it, behind it and in the gaps of its layout."""

    array: Array
    _edges: tuple[Array, ...]

    @classmethod
    def empty(
        cls,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        *,
        layout: str = "packed",
        allocate: Callable[[int], Array] = empty_bytes,
    ) -> Guarded:
        """An uninitialised array, aligned as `allocate` does; see `_storage` for strides.

        An unaligned one begins one element behind that.
        """
        kind = np.dtype(dtype)
        store, order = _storage(tuple(shape)) if layout == "strided" else (tuple(shape), None)
        nbytes = math.prod(store) * kind.itemsize
        raw = allocate(nbytes + 2 * GUARD_BYTES)
        first = GUARD_BYTES + (kind.itemsize if layout == "unaligned" else 0)
        edges = [raw[:first], raw[first + nbytes :]]
        within = raw[first : first + nbytes]
        stored = within.view(kind).reshape(store)
        if order is None:
            array = stored
        elif len(shape) == 1:
            array = stored[:, 0]
            edges.append(within.reshape(shape[0], 2 * kind.itemsize)[:, kind.itemsize :])
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
    if is_floating(array.dtype):
        array[...] = np.nan
    elif np.issubdtype(array.dtype, np.integer):
        array[...] = np.iinfo(array.dtype).max
    else:
        array[...] = True


def is_poison(array: Array) -> bool:
    """Whether an output is as `poison` left it, to the last element."""
    if is_floating(array.dtype):
        return bool((array != array).all())
    if np.issubdtype(array.dtype, np.integer):
        return bool((array == np.iinfo(array.dtype).max).all())
    return bool(array.all())


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays of one shape and dtype agree bit by bit, NaN and -0 included."""
    if one.dtype.itemsize in (1, 2, 4, 8):
        number = f"u{one.dtype.itemsize}"
        return bool((one.view(number) == other.view(number)).all())
    bits, others = (each.reshape(-1).view(np.uint8) for each in (one.copy(), other.copy()))
    return bool((bits == others).all())

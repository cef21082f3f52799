"""What a launch needs to know of CuPy arrays and torch tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def pointer(array: Any) -> int:
    """Device address of the first element of a CuPy array or a torch tensor."""
    address = getattr(array, "data_ptr", None)
    return int(array.data.ptr if address is None else address())


def strides_in_elements(array: Any) -> tuple[int, ...]:
    """Strides of a CuPy array or a torch tensor, one per axis, in elements."""
    strides = array.strides if not callable(getattr(array, "stride", None)) else None
    if strides is None:
        return tuple(array.stride())
    return _elements(strides, array.itemsize)


@lru_cache(maxsize=4096)
def _elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(stride // itemsize for stride in strides)

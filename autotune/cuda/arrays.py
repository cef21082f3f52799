"""CuPy's arrays, and what a launch needs to know of an array."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any

from autotune.errors import ShapeError
from autotune.libraries import (
    Form,
    Maker,
    NumpyArrays,
    extent,
    made_by,
    reach_into,
    share_memory,
)


def pointer(array: Any) -> int:
    """Device address of the first element of a CuPy array or a torch tensor."""
    of_torch = getattr(array, "data_ptr", None)
    address: int = array.data.ptr if of_torch is None else of_torch()
    return address


def strides_in_elements(array: Any) -> tuple[int, ...]:
    """Strides of a CuPy array or a torch tensor, one per axis, in elements.

    Raises ShapeError where an element does not lie at a multiple of its size.
    """
    of_torch = getattr(array, "stride", None)
    return _elements(array.strides, array.itemsize) if of_torch is None else tuple(of_torch())


@lru_cache(maxsize=4096)
def _elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    if any(stride % itemsize for stride in strides):
        raise ShapeError(
            f"strides of {strides} bytes are no multiples of an element of {itemsize}."
        )
    return tuple([stride // itemsize for stride in strides])


def _extent(array: Any) -> tuple[int, int]:
    start = array.data.ptr
    if array._c_contiguous:
        return start, start + array.nbytes
    return extent(start, array.shape, strides_in_elements(array), array.itemsize)


def _form(array: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return array.shape, strides_in_elements(array), array.itemsize


class CupyArrays(NumpyArrays):
    """CuPy's arrays, on the device that they were made on; the rest is as with NumPy's."""

    name = "cupy"

    def __init__(self) -> None:
        self._dtypes: dict[str, Any] = {}

    @cached_property
    def _new(self) -> Any:
        return import_module("cupy").ndarray

    def dtype(self, name: str) -> Any:
        """A numpy.dtype, looked up once."""
        found = self._dtypes.get(name)
        if found is None:
            found = self._dtypes[name] = super().dtype(name)
        return found

    def signature(self, operation: Hashable, arrays: Sequence[Any]) -> tuple[Hashable, ...]:
        """With the device of the first; that the others are there too, the kernel checks."""
        parts: list[Hashable] = [operation, arrays[0].dtype, arrays[0].data.device_id]
        for array in arrays:
            parts.append(array.shape)
            parts.append(array._c_contiguous)  # `flags` would build an object for it
        return tuple(parts)

    def place(self, array: Any) -> int | None:
        """The device that its memory is on."""
        return int(array.data.device_id)

    def writeable(self, array: Any) -> bool:
        """Always: CuPy knows no read-only arrays."""
        return True

    def overlap(self, one: Any, other: Any) -> bool:
        """By their addresses on the device."""
        if not reach_into(_extent(one), _extent(other)):
            return False
        return share_memory(other.data.ptr - one.data.ptr, _form(one), _form(other))

    def whereabouts(self, arrays: Sequence[Any]) -> tuple[Hashable, ...] | None:
        """By their addresses on the device."""
        return tuple([a.data.ptr if a._c_contiguous else (a.data.ptr, a.strides) for a in arrays])

    def extents(self, arrays: Sequence[Any]) -> list[tuple[int, int]] | None:
        """By their addresses on the device."""
        return list(map(_extent, arrays))

    def carve(self, workspace: Any, offset: int, form: Form) -> Any:
        """An array of its own on the same memory: a slice takes three views."""
        return self._new(form[0], self.dtype(form[1]), workspace.data + offset)

    def maker(self, forms: Sequence[Form], place: int | None) -> Maker:
        """From CuPy's current allocator, on the current device and stream."""
        return made_by(self._new, [(shape, self.dtype(name)) for shape, name in forms])

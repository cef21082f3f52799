"""CuPy's arrays, and what a launch needs to know of an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any

from autotune.cuda.streams import cupy_cuda
from autotune.errors import ShapeError
from autotune.libraries import (
    VECTOR_BYTES,
    Carver,
    Form,
    Maker,
    NumpyArrays,
    Part,
    Pooled,
    extent,
    library_of,
    made_by,
    reach_into,
    share_memory,
)

_KNOWN = 64  # addresses whose arrays are kept
_of_torch: set[type] = set()  # classes of arrays that turned out not to be CuPy's


def pointer(array: Any) -> int:
    """Device address of the first element of a CuPy array or a torch tensor."""
    kind: Any = array.__class__
    try:
        address: int = array.data_ptr() if kind in _of_torch else array.data.ptr
    except AttributeError:
        if kind in _of_torch:
            raise
        address = array.data_ptr()
        _of_torch.add(kind)
    return address


def packed_addresses(arrays: Sequence[Any]) -> list[int] | None:
    """Device addresses of CuPy arrays, or of torch tensors; None if one of them is not packed."""
    if library_of(arrays[0]).name == "torch":
        found = [array.data_ptr() for array in arrays if array.is_contiguous()]
    else:
        found = [array.data.ptr for array in arrays if array._c_contiguous]
    return found if len(found) == len(arrays) else None


def strides_in_elements(array: Any) -> tuple[int, ...]:
    """Strides of a CuPy array or a torch tensor, one per axis, in elements.

    Raises ShapeError where an element does not lie at a multiple of its size.
    """
    of_torch = getattr(array, "stride", None)
    return _elements(array.strides, array.itemsize) if of_torch is None else tuple(of_torch())


def require_elements(array: Any, address: int) -> None:
    """Raise ShapeError for an array whose first element lies at no multiple of its size."""
    size = array.itemsize if hasattr(array, "itemsize") else array.element_size()
    if address % size:
        raise ShapeError(
            f"an array of elements of {size} bytes begins at an address that is no multiple of "
            f"it; pass a copy."
        )


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


class _ArraysAt:
    """Arrays at offsets behind an address; they do not keep the memory that they lie in.

    An address that comes back gets the same ones: a pool gives the same memory again and again.
    """

    def __init__(
        self,
        new: Any,
        parts: Sequence[tuple[int, tuple[int, ...], Any]],
        then: Callable[[list[Any]], Any] = list,
    ) -> None:
        self._new, self._parts, self._then = new, parts, then
        self._known: dict[tuple[int, int], Any] = {}

    def __call__(self, memory: Any) -> Any:
        key = memory.ptr, memory.device_id
        found = self._known.get(key)
        if found is None:
            found = self._then(self._made(*key))
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def _made(self, address: int, device: int) -> list[Any]:
        cuda, arrays = cupy_cuda(), []
        for offset, shape, dtype in self._parts:
            nbytes = math.prod(shape) * dtype.itemsize
            memory = cuda.UnownedMemory(address + offset, nbytes, None, device)
            arrays.append(self._new(shape, dtype, cuda.MemoryPointer(memory, 0)))
        return arrays


def kept_views(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`make`, whose views of CuPy arrays are kept by address; they do not keep the memory.

    All packed arrays have to be of one shape and dtype; of others the views are made anew.
    """
    views_at: list[_ArraysAt] = []

    def views(array: Any) -> Any:
        if not getattr(array, "_c_contiguous", False):
            return make(array)
        if not views_at:
            like = 0, array.shape, array.dtype
            views_at.append(_ArraysAt(array.__class__, [like], lambda arrays: make(arrays[0])))
        return views_at[0](array.data)

    return views


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
            parts.append(array.data.ptr % VECTOR_BYTES == 0)
        return tuple(parts)

    def place(self, array: Any) -> int | None:
        """The device that its memory is on."""
        return int(array.data.device_id)

    def aligned(self, array: Any) -> bool:
        """By its address on the device."""
        return int(array.data.ptr) % VECTOR_BYTES == 0

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

    def carver(self, parts: Sequence[Part]) -> Carver:
        """Of arrays that keep no memory: those of the addresses met last are kept."""
        arrays_at = _ArraysAt(self._new, [(o, s, self.dtype(name)) for o, (s, name) in parts])
        return lambda array: arrays_at(array.data)

    def pooled(self, parts: Sequence[Part], nbytes: int, place: int | None) -> Pooled:
        """In one piece of CuPy's current allocator, on the current device and stream."""
        arrays_at = _ArraysAt(self._new, [(o, s, self.dtype(name)) for o, (s, name) in parts])
        alloc = cupy_cuda().alloc

        def make() -> tuple[Any, Sequence[Any]]:
            memory = alloc(nbytes)
            return memory, arrays_at(memory)

        return make

    def maker(self, forms: Sequence[Form], place: int | None) -> Maker:
        """From CuPy's current allocator, on the current device and stream."""
        return made_by(self._new, [(shape, self.dtype(name)) for shape, name in forms])

"""The array libraries that callers use, by the class of an array; none is imported for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from autotune.errors import ShapeError

Form = tuple[tuple[int, ...], str]
"""Shape and name of the dtype."""

Maker = Callable[[], list[Any]]

VECTOR_BYTES = 16
"""What a thread of a GPU reads at once at most, from addresses that are multiples of it."""

Part = tuple[int, Form]
"""An array in bytes: where it starts, and its form."""

Carver = Callable[[Any], Sequence[Any]]
Pooled = Callable[[], tuple[Any, Sequence[Any]]]
"""Gives what keeps the memory, and arrays in it."""


class Library(Protocol):
    """What dispatch and kernels need of an array library."""

    @property
    def name(self) -> str:
        """numpy, cupy or torch."""
        ...

    def signature(self, operation: Hashable, arrays: Sequence[Any]) -> tuple[Hashable, ...]:
        """What tells calls of an operation apart: dtype and place of the first, shapes, layouts.

        That arrays agree in the rest, the kernel checks. Flat: hashed faster than nested tuples.
        """
        ...

    def place(self, array: Any) -> int | None:
        """Number of the GPU that an array is on; None for the host's memory."""
        ...

    def dtype(self, name: str) -> Any:
        """The library's own dtype of that name."""
        ...

    def packed(self, array: Any) -> bool:
        """Whether an array is C-contiguous."""
        ...

    def aligned(self, array: Any) -> bool:
        """Whether an array begins where VECTOR_BYTES can be read at once, if that matters there."""
        ...

    def writeable(self, array: Any) -> bool:
        """Whether an array may be written into."""
        ...

    def overlap(self, one: Any, other: Any) -> bool:
        """Whether two arrays may share memory: their addresses reach into each other."""
        ...

    def whereabouts(self, arrays: Sequence[Any]) -> tuple[Hashable, ...] | None:
        """Addresses, and strides where an array is not packed; None where asking takes long."""
        ...

    def extents(self, arrays: Sequence[Any]) -> list[tuple[int, int]] | None:
        """The addresses of first bytes and of one past the last; None where asking takes long."""
        ...

    def copy(self, array: Any) -> Any:
        """A copy with memory of its own."""
        ...

    def maker(self, forms: Sequence[Form], place: int | None) -> Maker:
        """A function that makes uninitialised arrays of these forms, from the library's pool."""
        ...

    def carver(self, parts: Sequence[Part]) -> Carver:
        """A function that gives those parts of an array of bytes."""
        ...

    def pooled(self, parts: Sequence[Part], nbytes: int, place: int | None) -> Pooled:
        """A function that makes those parts from the library's pool, in one piece or each alone."""
        ...

    def widened(self, array: Any) -> Any:
        """A float64 copy that NumPy's functions run on where it is."""
        ...

    def store(self, target: Any, values: Any) -> None:
        """Write what was computed from `widened` arrays."""
        ...


class NumpyArrays:
    """NumPy's arrays, in the host's memory; CuPy's have the same methods on a GPU."""

    name = "numpy"

    def signature(self, operation: Hashable, arrays: Sequence[Any]) -> tuple[Hashable, ...]:
        """Without a place: there is one host."""
        parts: list[Hashable] = [operation, arrays[0].dtype]
        for array in arrays:
            parts.append(array.shape)
            parts.append(array.flags.c_contiguous)
        return tuple(parts)

    def place(self, array: Any) -> int | None:
        """Always the host's memory."""
        return None

    def dtype(self, name: str) -> Any:
        """A numpy.dtype; bfloat16 needs ml_dtypes."""
        from autotune.arrays import array_dtype

        return array_dtype(name)

    def packed(self, array: Any) -> bool:
        """By its flags."""
        return bool(array.flags.c_contiguous)

    def aligned(self, array: Any) -> bool:
        """Always: a CPU reads vectors from anywhere, and NumPy takes long to tell an address."""
        return True

    def writeable(self, array: Any) -> bool:
        """By its flags."""
        return bool(array.flags.writeable)

    def overlap(self, one: Any, other: Any) -> bool:
        """Whether they have a byte in common; views of alternate columns, say, have none."""
        return share_bytes(one, other)

    def whereabouts(self, arrays: Sequence[Any]) -> tuple[Hashable, ...] | None:
        """None: `overlap` is as fast."""
        return None

    def extents(self, arrays: Sequence[Any]) -> list[tuple[int, int]] | None:
        """None: `overlap` is as fast."""
        return None

    def copy(self, array: Any) -> Any:
        """A packed one."""
        return array.copy()

    def maker(self, forms: Sequence[Form], place: int | None) -> Maker:
        """By `numpy.empty`."""
        import numpy as np

        return made_by(np.empty, [(shape, self.dtype(name)) for shape, name in forms])

    def carver(self, parts: Sequence[Part]) -> Carver:
        """Of views."""
        return carver_of_views(self, parts)

    def pooled(self, parts: Sequence[Part], nbytes: int, place: int | None) -> Pooled:
        """Each alone."""
        return each_alone(self, parts, place)

    def widened(self, array: Any) -> Any:
        """A float64 copy."""
        return array.astype("float64")

    def store(self, target: Any, values: Any) -> None:
        """By assignment."""
        target[...] = values


def made_by(empty: Callable[[Any, Any], Any], forms: list[tuple[Any, Any]]) -> Maker:
    """A function that calls `empty(shape, dtype)` for each form; one and two are common."""
    if len(forms) == 1:
        ((shape, dtype),) = forms
        return lambda: [empty(shape, dtype)]
    if len(forms) == 2:
        (shape, dtype), (other, kind) = forms
        return lambda: [empty(shape, dtype), empty(other, kind)]
    return lambda: [empty(shape, dtype) for shape, dtype in forms]


def carver_of_views(library: Library, parts: Sequence[Part]) -> Carver:
    """Parts as views of bytes; all three libraries have the same methods for it."""
    import math

    known = []
    for offset, (shape, name) in parts:
        dtype = library.dtype(name)
        known.append((slice(offset, offset + math.prod(shape) * dtype.itemsize), dtype, shape))
    return lambda array: [array[span].view(dtype).reshape(shape) for span, dtype, shape in known]


def each_alone(library: Library, parts: Sequence[Part], place: int | None) -> Pooled:
    """Parts that are arrays of the library, which keep their memory themselves."""
    make = library.maker([form for _, form in parts], place)
    return lambda: (None, make())


def reach_into(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two ranges of addresses, each from its first byte to one past its last, meet."""
    return one[0] < other[1] and other[0] < one[1]


def share_bytes(one: Any, other: Any) -> bool:
    """Whether two NumPy arrays have a byte in common; True where that is hard to tell."""
    import numpy as np

    try:
        return np.shares_memory(one, other, max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return True


@lru_cache(maxsize=1024)
def share_memory(
    distance: int,
    one: tuple[tuple[int, ...], tuple[int, ...], int],
    other: tuple[tuple[int, ...], tuple[int, ...], int],
) -> bool:
    """Whether two arrays that start so many bytes apart have a byte in common.

    Each is its shape, its strides in elements and the size of an element.
    """
    return share_bytes(stand_in(_SOMEWHERE, *one), stand_in(_SOMEWHERE + distance, *other))


def stand_in(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Any:
    """A NumPy array at the addresses of another, never to be read; strides in elements."""
    import numpy as np

    described = {
        "data": (address, True),
        "shape": tuple(shape),
        "strides": tuple(itemsize * stride for stride in strides),
        "typestr": f"|V{itemsize}",
        "version": 3,
    }
    return np.asarray(type("Described", (), {"__array_interface__": described})())


def extent(
    address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, int]:
    """The addresses of an array's first byte and of one past its last; strides in elements."""
    if 0 in shape:
        return address, address
    steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    first = address + itemsize * sum(step for step in steps if step < 0)
    return first, address + itemsize * (sum(step for step in steps if step > 0) + 1)


_SOMEWHERE = 1 << 60  # an address with room on both sides
_MOST_WORK: Any = 10_000
"""What `numpy.shares_memory` may try; far more than views of one array take."""

known: dict[type, Library] = {}
"""Libraries by the classes of arrays met so far."""


def library_of(array: Any) -> Library:
    """The library of an array; ShapeError for anything else."""
    kind = array.__class__
    return known[kind] if kind in known else _learn(kind)


def _learn(kind: type) -> Library:
    for base in kind.__mro__:
        home = base.__module__.partition(".")[0]
        if (home, base.__name__) == ("numpy", "MaskedArray"):
            raise ShapeError("a masked array's mask would be ignored; pass its filled(...).")
        if (home, base.__name__) == ("numpy", "ndarray"):
            found: Library = NumpyArrays()
        elif (home, base.__name__) == ("cupy", "ndarray"):
            from autotune.cuda.arrays import CupyArrays

            found = CupyArrays()
        elif (home, base.__name__) == ("torch", "Tensor"):
            from autotune.cuda.tensors import TorchTensors

            found = TorchTensors()
        else:
            continue
        known[kind] = found
        return found
    raise ShapeError(f"arrays are NumPy's, CuPy's or torch's, got a {kind.__name__} among them.")


def common_library(arrays: Sequence[Any], what: str) -> tuple[Library, int | None]:
    """The library and the place that all arrays share; ShapeError if they do not."""
    first = library_of(arrays[0])
    for array in arrays:
        other = library_of(array)
        if other.name != first.name:
            raise ShapeError(
                f"{what} takes arrays of one library, got {first.name} and {other.name}."
            )
    places = {first.place(array) for array in arrays}
    if len(places) > 1:
        named = " and ".join(sorted(place_name(place) for place in places))
        raise ShapeError(f"{what} takes arrays on one device, got some on {named}.")
    return first, places.pop()


def place_name(place: int | None) -> str:
    """How people call a place."""
    return "the host" if place is None else f"cuda:{place}"

"""Packs the argument struct of kernels that take one: pointers, a scalar, sizes and strides."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from autotune.cuda.arrays import require_elements, strides_in_elements

AXES = "bhnd"
"""What the four strides of a tensor are along: batch, head, row, column."""

VECTOR = 16
"""Bytes of one wide load or asynchronous copy."""

_KNOWN = 64  # calls whose struct is kept: the arrays of a loop come back

Launches = Sequence[Callable[[bytes], None]]


class ArgumentStruct:
    """From the arrays of a call to the bytes of the struct.

    The struct has a pointer for each of `pointers` (null where the call has no such array), the
    scalar (a scale, an eps) as a double, each of `sizes` in 64 bits, and four strides in elements
    for each of `strided` (zeros where the call has none such). `names` are the arrays in the order
    of the call; `strided` gives the axes that a tensor has, out of "bhnd", and `shapes` its sizes
    along them. Rows have to be aligned in all of `strided`, or in those of `vectors` alone.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        pointers: Sequence[str],
        strided: Mapping[str, str],
        shapes: Mapping[str, Sequence[int]],
        sizes: Sequence[int],
        itemsize: int,
        vectors: Sequence[str] | None = None,
    ) -> None:
        names = list(names)
        given = [name for name in pointers if name in names]
        self._order = itemgetter(*map(names.index, given))
        codes = ["Q" if name in given else "8x" for name in pointers]
        self._call = struct.Struct(f"<{''.join(codes)}d")
        self._present = [name for name in strided if name in names]
        self._tensors = itemgetter(*map(names.index, self._present))
        self._axes = {name: axes if name in names else "" for name, axes in strided.items()}
        self._vectors = [n for n in self._present if vectors is None or n in vectors]
        self._low_bits = sum((VECTOR - 1) << 64 * pointers.index(name) for name in self._vectors)
        self._sizes = struct.pack(f"<{len(sizes)}q", *sizes)
        self._packed = tuple(_packed_strides(shapes[name]) for name in self._present)
        self._per_vector = VECTOR // itemsize
        self._columns = {shapes[name][-1] for name in self._vectors}
        self._torch: type | None = None  # the class of arrays that turned out not to be CuPy's
        self._known: dict[tuple[Any, ...], tuple[bytes, bool]] = {}
        self._rests: dict[Any, tuple[bytes, bool]] = {}

    @property
    def code(self) -> str:
        """What a launcher is told about it: one struct."""
        return f"S{self._call.size + len(self._sizes) + 32 * len(self._axes)}"

    def __call__(self, arrays: Sequence[Any], scalar: float) -> tuple[bytes, bool]:
        """The struct, and whether all rows are contiguous and 16-byte aligned."""
        call: list[Any] = [scalar]
        try:
            if arrays[0].__class__ is self._torch:
                for array in arrays:
                    start = array.data_ptr()
                    call.append(start if array.is_contiguous() else (start, array.stride()))
            else:
                for array in arrays:
                    start = array.data.ptr
                    call.append(start if array._c_contiguous else (start, array.strides))
        except AttributeError:
            if arrays[0].__class__ is self._torch:
                raise
            self._torch = arrays[0].__class__
            return self(arrays, scalar)
        known = self._known.get(tuple(call))
        return known or self._pack(call, arrays)

    def _pack(self, call: list[Any], arrays: Sequence[Any]) -> tuple[bytes, bool]:
        """The same for a call that is not known."""
        addresses = [each[0] if each.__class__ is tuple else each for each in call[1:]]
        packed = addresses == call[1:]
        for array, address in zip(arrays, addresses, strict=True):
            require_elements(array, address)
        layout = None if packed else tuple(map(strides_in_elements, self._tensors(arrays)))
        start = self._call.pack(*self._order(addresses), call[0])
        rest, aligned = self._rests.get(layout) or self._describe(layout)
        # All addresses in one number: rows are aligned where none has a bit below 16.
        made = start + rest, aligned and not int.from_bytes(start, "little") & self._low_bits
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[tuple(call)] = made
        return made

    def _describe(self, layout: Any) -> tuple[bytes, bool]:
        """The part that follows from sizes and strides, and whether rows align.

        `layout` None: all tensors are packed.
        """
        found = dict(zip(self._present, layout or self._packed, strict=True))
        aligned = not any(columns % self._per_vector for columns in self._columns)
        for name in self._vectors:
            *outer, last = found[name]
            aligned &= last == 1 and not any(stride % self._per_vector for stride in outer)
        numbers: list[int] = []
        for name, axes in self._axes.items():
            along = dict(zip(axes, found.get(name, ()), strict=True))
            numbers += (along.get(axis, 0) for axis in AXES)
        self._rests[layout] = self._sizes + struct.pack(f"<{len(numbers)}q", *numbers), aligned
        return self._rests[layout]


def bind(
    arguments: ArgumentStruct, plan: Callable[[bool], Launches], *, likely: bool
) -> Callable[..., None]:
    """`run(*arrays, scalar)`: the launches that `plan` gives for aligned rows, or for any others.

    The likelier of the two is there from the start, the other from the first call that needs it.
    """
    launches: dict[bool, Launches] = {likely: plan(likely)}

    def run(*values: Any) -> None:
        packed, aligned = arguments(values[:-1], values[-1])
        steps = launches.get(aligned)
        if steps is None:
            steps = launches[aligned] = plan(aligned)
        for launch in steps:
            launch(packed)

    return run


def _contiguous(array: Any) -> bool:
    own = getattr(array, "_c_contiguous", None)
    return bool(array.is_contiguous() if own is None else own)


def _packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides)

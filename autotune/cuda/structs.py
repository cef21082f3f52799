"""Packs the argument struct of kernels that take one: pointers, a scalar, sizes and strides."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from autotune.cuda.arrays import pointer, strides_in_elements

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
    along them.
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
    ) -> None:
        given = [name for name in pointers if name in names]
        self._order = itemgetter(*map(list(names).index, given))
        codes = ["Q" if name in given else "8x" for name in pointers]
        self._call = struct.Struct(f"<{''.join(codes)}d")
        present = [name for name in strided if name in names]
        self._tensors = itemgetter(*map(list(names).index, present))
        self._axes = [axes if name in names else "" for name, axes in strided.items()]
        self._low_bits = sum((VECTOR - 1) << 64 * list(pointers).index(name) for name in present)
        self._sizes = struct.pack(f"<{len(sizes)}q", *sizes)
        self._packed = tuple(_packed_strides(shapes[name]) for name in present)
        self._per_vector = VECTOR // itemsize
        self._columns = {shapes[name][-1] for name in present}
        self._known: dict[tuple[Any, ...], tuple[bytes, bool]] = {}
        self._rests: dict[Any, tuple[bytes, bool]] = {}

    @property
    def code(self) -> str:
        """What a launcher is told about it: one struct."""
        return f"S{self._call.size + len(self._sizes) + 32 * len(self._axes)}"

    def __call__(self, arrays: Sequence[Any], scalar: float) -> tuple[bytes, bool]:
        """The struct, and whether all rows are contiguous and 16-byte aligned."""
        addresses = tuple(map(pointer, arrays))
        tensors = self._tensors(arrays)
        layout = (
            None if all(map(_contiguous, tensors)) else tuple(map(strides_in_elements, tensors))
        )
        key = (scalar, layout, addresses)
        found = self._known.get(key)
        if found is None:
            start = self._call.pack(*self._order(addresses), scalar)
            rest, aligned = self._rests.get(layout) or self._describe(layout)
            # All addresses in one number: rows are aligned where none has a bit below 16.
            found = start + rest, aligned and not int.from_bytes(start, "little") & self._low_bits
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def _describe(self, layout: Any) -> tuple[bytes, bool]:
        """The part that follows from sizes and strides, and whether rows align."""
        numbers: list[int] = []
        aligned = not any(columns % self._per_vector for columns in self._columns)
        each = iter(layout or self._packed)
        for axes in self._axes:
            strides = next(each) if axes else (1,)
            along = dict(zip(axes, strides, strict=bool(axes)))
            numbers += (along.get(axis, 0) for axis in AXES)
            aligned &= strides[-1] == 1 and not any(s % self._per_vector for s in strides[:-1])
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

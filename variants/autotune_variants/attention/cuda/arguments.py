"""Packs the argument struct of the tiled kernels (arguments.cuh)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from autotune.cuda import pointer, strides_in_elements
from autotune.errors import ShapeError

# The pointers of the struct in order, and those of them that have strides.
_POINTERS = (
    *("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v"),
    *("lse", "delta", "shift", "inverse", "scratch", "measures"),
)
_STRIDED = _POINTERS[:9]
_SIZES = struct.Struct("<5q")
_STRIDES = struct.Struct(f"<{4 * len(_STRIDED)}q")
_VECTOR = 16  # bytes of one asynchronous copy
_KNOWN = 64  # calls whose struct is kept: the arrays of a loop come back

ARGUMENTS = f"S{8 * (len(_POINTERS) + 1) + _SIZES.size + _STRIDES.size}"
"""What `launcher` is told about it: one struct."""

Run = Callable[..., None]
Launches = Sequence[Callable[[bytes], None]]
Layout = tuple[tuple[int, ...], ...]  # strides in bytes


class Arguments:
    """From the arrays of a call to the bytes of the struct.

    `names` are the arrays in the order in which the call has them; `kept` says which of the
    kernels' two own arrays, scratch and measures, a temporary is.
    """

    def __init__(self, problem: Any, names: Sequence[str], kept: Mapping[str, str]) -> None:
        sizes, slots = problem.sizes, [kept.get(name, name) for name in names]
        given = [name for name in _POINTERS if name in slots]
        self._order = itemgetter(*map(slots.index, given))
        self._call = struct.Struct(
            "<" + "".join("Q" if n in given else "8x" for n in _POINTERS) + "d"
        )
        self._strided = [name for name in _STRIDED if name in slots]
        self._tensors = itemgetter(*map(slots.index, self._strided))
        self._off = sum(
            (_VECTOR - 1) << 64 * _POINTERS.index(name) for name in self._strided if name != "lse"
        )
        self._itemsize = {**dict.fromkeys(_STRIDED, problem.itemsize)}
        self._itemsize["lse"] = max(problem.itemsize, 4)
        self._depth = sizes["D"]
        self._sizes = _SIZES.pack(*(sizes[dim] for dim in ("B", "H", "Hkv", "Nq", "Nk")))
        self._packed = tuple(self._packed_strides(sizes, name) for name in self._strided)
        self._torch: type | None = None  # the class of arrays that turned out not to be CuPy's
        self._known: dict[tuple[Any, ...], tuple[bytes, bool]] = {}
        self._layouts: dict[Layout | None, tuple[bytes, bool]] = {}

    def __call__(self, arrays: Sequence[Any], scale: float) -> tuple[bytes, bool]:
        """The struct, and whether all rows are contiguous and 16-byte aligned."""
        call: list[Any] = [scale]
        try:
            if arrays[0].__class__ is self._torch:
                for array in arrays:
                    call.append(array.data_ptr() if array.is_contiguous() else None)
            else:
                for array in arrays:
                    call.append(array.data.ptr if array._c_contiguous else None)
        except AttributeError:
            if arrays[0].__class__ is self._torch:
                raise
            self._torch = arrays[0].__class__
            return self(arrays, scale)
        known = self._known.get(tuple(call))
        return known or self._pack(call, arrays)

    def _pack(self, call: list[Any], arrays: Sequence[Any]) -> tuple[bytes, bool]:
        """The same for a call that is not known: by its scale and the addresses of its arrays."""
        packed = None not in call
        addresses = call[1:] if packed else [pointer(array) for array in arrays]
        layout = None if packed else self._layout(self._tensors(arrays))
        start = self._call.pack(*self._order(addresses), call[0])
        rest, aligned = self._layouts.get(layout) or self._describe(layout)
        # All addresses in one number: rows are aligned where none has a bit below 16.
        made = start + rest, aligned and not int.from_bytes(start, "little") & self._off
        if packed:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[tuple(call)] = made
        return made

    def _packed_strides(self, sizes: Mapping[str, int], name: str) -> tuple[int, ...]:
        heads, rows = ("Hkv", "Nk") if name in ("k", "v", "grad_k", "grad_v") else ("H", "Nq")
        shape = (sizes[heads], sizes[rows], *(() if name == "lse" else (sizes["D"],)))
        strides = [self._itemsize[name]]
        for size in reversed(shape):
            strides.insert(0, strides[0] * size)
        return tuple(strides)

    def _layout(self, tensors: Sequence[Any]) -> Layout:
        return tuple(
            array.strides
            if hasattr(array, "strides")
            else tuple(self._itemsize[name] * stride for stride in strides_in_elements(array))
            for name, array in zip(self._strided, tensors, strict=True)
        )

    def _describe(self, layout: Layout | None) -> tuple[bytes, bool]:
        """The part of the struct that follows from sizes and strides, and whether rows align.

        `layout` None: all tensors are packed.
        """
        found: dict[str, tuple[int, ...]] = {}
        aligned = self._depth * self._itemsize["q"] % _VECTOR == 0
        for name, strides in zip(self._strided, layout or self._packed, strict=True):
            size = self._itemsize[name]
            if any(stride % size for stride in strides):
                raise ShapeError(f"{name}: its strides {strides} are no multiples of its elements.")
            elements = tuple(stride // size for stride in strides)
            found[name] = elements if len(elements) == 4 else (*elements, 0)
            if name != "lse":
                aligned &= elements[3] == 1 and not any(s % _VECTOR for s in strides[:3])
        ordered = (number for name in _STRIDED for number in found.get(name, (0, 0, 0, 0)))
        described = self._sizes + _STRIDES.pack(*ordered), aligned
        self._layouts[layout] = described
        return described


def bind(
    problem: Any,
    names: Sequence[str],
    plan: Callable[[bool], Launches],
    kept: Mapping[str, str],
) -> Run:
    """`run(*arrays, scale)`: the launches that `plan` gives for aligned rows, or for any others.

    The likelier of the two is there from the start, the other from the first call that needs it.
    """
    arguments = Arguments(problem, names, kept)
    likely = problem.sizes["D"] * problem.itemsize % _VECTOR == 0
    launches: dict[bool, Launches] = {likely: plan(likely)}

    def run(*values: Any) -> None:
        packed, aligned = arguments(values[:-1], values[-1])
        steps = launches.get(aligned)
        if steps is None:
            steps = launches[aligned] = plan(aligned)
        for launch in steps:
            launch(packed)

    return run

"""Binding: how one kernel takes the arrays of one library, and on what device and stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from autotune.errors import ShapeError
from autotune.libraries import Library, Maker, library_of, place_name
from autotune.model.problem import Problem

Around = Callable[[], AbstractContextManager[Any] | None]


@dataclass(frozen=True, slots=True)
class Binding:
    """The arrays of one library as a kernel expects them.

    `read` gives what `forms` holds for each input. `make` makes the outputs. `around` gives the
    context that a call needs, if any. `recording` tells whether a CUDA graph is being captured,
    which keeps no memory alive.
    """

    library: Library
    read: Callable[[Any], Any]
    forms: tuple[Any, ...]
    outputs: tuple[tuple[tuple[int, ...], Any], ...]
    make: Maker
    around: Around | None = None
    recording: Callable[[], bool] | None = None

    @property
    def dtypes(self) -> tuple[Any, ...]:
        """The dtype of each input."""
        return tuple(form[2] for form in self.forms)


def bind(problem: Problem, device: Any, array: Any) -> Binding:
    """The binding for arrays like the given one; ShapeError where its device is another."""
    library = library_of(array)
    place, wanted = library.place(array), getattr(device, "index", None)
    if place != wanted:
        raise ShapeError(
            f"{problem.operation.name}: an array is on {place_name(place)}, this kernel runs on "
            f"{place_name(wanted)}; dispatch again with the arrays."
        )
    return _bound(problem, library, array.__class__, place)


def bind_native(problem: Problem, device: Any) -> Binding:
    """The binding for the arrays of the device's own library: NumPy's or CuPy's."""
    from importlib import import_module

    module: Any = import_module("cupy" if device.kind == "cuda" else "numpy")
    library = library_of(module.empty(0, "float32"))
    return _bound(problem, library, module.ndarray, getattr(device, "index", None))


def _bound(problem: Problem, library: Library, kind: type, place: int | None) -> Binding:
    operation = problem.operation
    names = ["__class__", "shape", "dtype"]
    where: tuple[Any, ...] = ()
    around: Around | None = None
    recording: Callable[[], bool] | None = None
    if place is not None:
        from autotune.cuda import streams

        around = streams.around(library.name, place)
        recording = streams.capturing if library.name == "cupy" else None
        if library.name == "torch":
            names, where = [*names, "device"], (streams.torch_device(place),)
        elif streams.several_devices():
            names, where = [*names, "data.device_id"], (place,)
    inputs, outputs = (
        [(each.shape(problem.sizes), problem.element_type(each.dtype)) for each in tensors]
        for tensors in (operation.inputs, operation.fresh_outputs)
    )
    return Binding(
        library=library,
        read=attrgetter(*names),
        forms=tuple((kind, shape, library.dtype(dtype), *where) for shape, dtype in inputs),
        outputs=tuple((shape, library.dtype(dtype)) for shape, dtype in outputs),
        make=library.maker(outputs, place),
        around=around,
        recording=recording,
    )


def fits(binding: Binding, arrays: Sequence[Any]) -> bool:
    """Whether arrays are what the binding expects; False for things that are no arrays."""
    try:
        return tuple(map(binding.read, arrays)) == binding.forms
    except AttributeError:
        return False

"""Binding: how one kernel takes the arrays of one library, and on what device and stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from autotune.errors import ShapeError
from autotune.forked import require_cuda
from autotune.libraries import (
    Form,
    Library,
    Maker,
    common_library,
    library_of,
    place_name,
)
from autotune.model.operation import Operation, Tensor
from autotune.model.problem import Problem
from autotune.overlap import Apart

Around = Callable[[], AbstractContextManager[Any] | None]
_PACKED = "_c_contiguous"
_is_packed = attrgetter(_PACKED)
_KNOWN = 64  # calls that are seen before: the arrays of a loop come back


@dataclass(frozen=True, slots=True)
class Binding:
    """The arrays of one library as a kernel expects them.

    `read` gives what `forms` holds for each input and `outputs` for each fresh output: class,
    shape, dtype. `takes` has the forms of inputs and given outputs, by how many outputs are given:
    none, all but the residuals, or all. `make` makes the fresh outputs, `make_residuals` those of
    them that are residuals, which `hidden` marks. `writeable` is None where no array is
    read-only. `around` gives the context that a call needs, if any. `recording` tells whether a
    CUDA graph is being captured, which keeps no memory alive. `apart` keeps inputs apart from what
    is written to. `guard` raises for inputs that the library wants more of than a result. `whole`
    reads what `read` does, whether an array is packed, and its address; where it is not None,
    `seen` has what it gave for packed arrays that were taken and are apart from each other.
    """

    library: Library
    place: int | None
    read: Callable[[Any], Any]
    forms: tuple[Any, ...]
    outputs: tuple[Any, ...]
    takes: Mapping[int, tuple[Any, ...]]
    make: Maker
    make_residuals: Maker
    hidden: tuple[bool, ...]
    apart: Apart
    writeable: Callable[[Any], bool] | None = None
    around: Around | None = None
    recording: Callable[[], bool] | None = None
    guard: Callable[[Sequence[Any]], None] | None = None
    whole: Callable[[Any], Any] | None = None
    seen: set[tuple[Any, ...]] = field(default_factory=set)


def bind(problem: Problem, device: Any, array: Any) -> Binding:
    """The binding for arrays like the given one; ShapeError where its device is another."""
    library = library_of(array)
    place, wanted = library.place(array), getattr(device, "index", None)
    if place != wanted:
        raise ShapeError(
            f"{problem.operation.name}: an array is on {place_name(place)}, this kernel runs on "
            f"{place_name(wanted)}; dispatch again with the arrays."
        )
    if place is not None:
        require_cuda(problem.operation.name)
    return _bound(problem, library, array.__class__, place)


def _bound(problem: Problem, library: Library, kind: type, place: int | None) -> Binding:
    operation = problem.operation
    names = ["__class__", "shape", "dtype"]
    where: tuple[Any, ...] = ()
    around: Around | None = None
    recording: Callable[[], bool] | None = None
    guard: Callable[[Sequence[Any]], None] | None = None
    if library.name == "torch":
        from autotune.cuda.tensors import input_guard

        guard = input_guard(operation.name)
    if place is not None:
        from autotune.cuda import streams

        around = streams.around(library.name, place)
        recording = streams.capture_check() if library.name == "cupy" else None
        if library.name == "torch":
            names, where = [*names, "device"], (streams.torch_device(place),)
        elif streams.several_devices():
            names, where = [*names, "data.device_id"], (place,)
    residuals = [each for each in operation.fresh_outputs if each.name in operation.residuals]
    inputs, outputs, hidden, shown = (
        [(each.shape(problem.sizes), problem.element_type(each.dtype)) for each in tensors]
        for tensors in (operation.inputs, operation.fresh_outputs, residuals, _shown(operation))
    )

    def forms(shapes: list[Form]) -> tuple[Any, ...]:
        return tuple((kind, shape, library.dtype(dtype), *where) for shape, dtype in shapes)

    return Binding(
        library=library,
        place=place,
        read=attrgetter(*names),
        forms=forms(inputs),
        outputs=forms(outputs),
        takes={len(given): forms([*inputs, *given]) for given in ([], shown, outputs)},
        make=library.maker(outputs, place),
        make_residuals=library.maker(hidden, place),
        hidden=tuple(each in residuals for each in operation.fresh_outputs),
        apart=Apart(operation, library),
        writeable=library.writeable if place is None else None,
        around=around,
        recording=recording,
        guard=guard,
        whole=attrgetter(*names, _PACKED, "data.ptr") if library.name == "cupy" else None,
    )


def _shown(operation: Operation) -> list[Tensor]:
    """The fresh outputs without the residuals."""
    return [each for each in operation.fresh_outputs if each.name not in operation.residuals]


def takes(binding: Binding, inputs: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    """Whether inputs and given outputs are what the binding expects, in one comparison.

    What it rejects may still be taken: `fits` and `explain_outputs` look closer.
    """
    try:
        fit = tuple(map(binding.read, inputs + given)) == binding.takes[len(given)]
    except (AttributeError, KeyError):
        return False  # something that is no array of this library, or too many
    if fit and given and binding.writeable is not None:
        return all(map(binding.writeable, given))
    return fit


def was_seen(binding: Binding, inputs: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    """Whether a call with just these arrays was taken, and they are apart: neither need be asked.

    In one look-up, which is a third of what asking for both takes. Only of arrays of CuPy.
    """
    if binding.whole is None:
        return False
    try:
        return tuple(map(binding.whole, inputs + given)) in binding.seen
    except (AttributeError, TypeError):
        return False  # something that is no array


def saw(binding: Binding, arrays: tuple[Any, ...]) -> None:
    """Keep a call whose arrays are taken and apart; of packed ones the address tells the rest."""
    if binding.whole is None or not all(map(_is_packed, arrays)):
        return
    if len(binding.seen) >= _KNOWN:
        binding.seen.clear()
    binding.seen.add(tuple(map(binding.whole, arrays)))


def fits(binding: Binding, arrays: Sequence[Any]) -> bool:
    """Whether arrays are what the binding expects; False for things that are no arrays."""
    try:
        return tuple(map(binding.read, arrays)) == binding.forms
    except AttributeError:
        return False


def explain_inputs(problem: Problem, binding: Binding, inputs: Sequence[Any]) -> None:
    """Raise the ShapeError that names what does not fit, if anything does not."""
    operation = problem.operation
    sizes = operation.sizes_from_arrays([array.shape for array in inputs])
    common_library(inputs, operation.name)
    for tensor, array, form in zip(operation.inputs, inputs, binding.forms, strict=True):
        shape, dtype = form[1:3]
        if array.shape != shape:
            differing = [
                f"{dim}={sizes[dim]} (dispatched for {problem.sizes[dim]})"
                for dim in tensor.dims
                if sizes[dim] != problem.sizes[dim]
            ]
            raise ShapeError(
                f"{operation.name}: {tensor.name} has {', '.join(differing)}; dispatch again."
            )
        if array.dtype != dtype:
            raise ShapeError(
                f"{operation.name}: {tensor.name} is {array.dtype}, dispatched for {dtype}."
            )


def explain_outputs(problem: Problem, binding: Binding, given: Sequence[Any]) -> None:
    """The same for arrays to write into: every fresh output, or all but the residuals."""
    operation = problem.operation
    tensors: Sequence[Tensor] = operation.fresh_outputs
    if len(given) not in (len(tensors), len(_shown(operation))):
        names = ", ".join(tensor.name for tensor in tensors)
        raise ShapeError(f"{operation.name}: out takes {names}; got {len(given)} arrays.")
    if len(given) != len(tensors):
        tensors = _shown(operation)
    expected = binding.takes[len(given)][len(operation.inputs) :]
    for array, form, tensor in zip(given, expected, tensors, strict=True):
        what = f"{operation.name}: out {tensor}"
        library, (shape, dtype) = library_of(array), form[1:3]
        if library.name != binding.library.name:
            raise ShapeError(
                f"{what} is {library.name}'s and the inputs {binding.library.name}'s; pass "
                f"arrays of one library."
            )
        if array.shape != shape or array.dtype != dtype:
            found = f"{array.dtype} {array.shape}"
            raise ShapeError(f"{what} must be {dtype} {shape}, got {found}.")
        if not library.writeable(array):
            raise ShapeError(f"{what} is read-only; pass a writable one.")
        if library.place(array) != binding.place:
            place = place_name(library.place(array))
            raise ShapeError(f"{what} is on {place}; pass one where the inputs are.")

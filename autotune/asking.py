"""From what a caller of dispatch writes to a problem and a wish; every mistake named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.device import Device, find_device
from autotune.errors import ShapeError, UnknownNameError, UserError
from autotune.libraries import common_library, library_of, place_name
from autotune.model.operation import Operation, canonical_dtype
from autotune.model.problem import Problem
from autotune.modes import require_mode
from autotune_policies import Constraints

OPTIONS = (
    *("dims", "device", "mode", "deterministic", "max_workspace", "max_error"),
    *("strict", "tune_on_miss"),
)
"""Options of dispatch that are not the operation's own flags and scalars."""

NO_CONSTRAINTS = Constraints()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller wants of the answer, beyond the problem."""

    constraints: Constraints = NO_CONSTRAINTS
    mode: str = "cold"
    strict: bool = False
    tune_on_miss: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Wish:
        """The wish among the options of dispatch."""
        mode = options.get("mode", "cold")
        require_mode(mode)
        for name in ("max_workspace", "max_error"):
            limit = options.get(name)
            number = isinstance(limit, int | float) and not isinstance(limit, bool)
            if limit is not None and (not number or limit != limit):
                raise UserError(f"{name} is a number, got {limit!r}.")
        for name in ("deterministic", "strict", "tune_on_miss"):
            if not isinstance(options.get(name, False), bool | int):
                raise UserError(f"{name} is True or False, got {options[name]!r}.")
        constraints = Constraints(
            deterministic=bool(options.get("deterministic", False)),
            max_workspace=options.get("max_workspace"),
            max_error=options.get("max_error"),
        )
        return cls(
            constraints,
            mode,
            strict=bool(options.get("strict", False)),
            tune_on_miss=bool(options.get("tune_on_miss", False)),
        )


def problem_from_shape(
    operation: Operation, spec: tuple[Any, ...], dtype: Any, options: Mapping[str, Any]
) -> Problem:
    """The problem that a positional shape or `dims=` names."""
    dims = options.get("dims")
    name = operation.name
    if len(spec) > 1:
        raise ShapeError(f"give the shape as one tuple: dispatch({name}, {tuple(spec)}).")
    if (dims is None) == (not spec):
        raise ShapeError(f"dispatch({name}, ...) takes either a shape or dims={{...}}.")
    shape = spec[0] if dims is None else dims
    if isinstance(shape, str | bytes) or not hasattr(shape, "__len__"):
        raise ShapeError(f"a shape of {name} is a tuple of sizes or a dict, got {shape!r}.")
    return Problem.of(operation, shape, dtype, **flags_of(operation, options))


def problem_from_arrays(
    operation: Operation, arrays: tuple[Any, ...], dtype: Any, options: Mapping[str, Any]
) -> Problem:
    """The problem that example arrays pose: sizes, dtype and layout are theirs.

    A dtype that the caller gives as well has to be theirs.
    """
    if options.get("dims") is not None:
        raise ShapeError(f"dispatch({operation.name}, ...) takes arrays or dims={{...}}, not both.")
    what = f"dispatch({operation.name}, ...)"
    for array in arrays:
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            kind = type(array).__name__
            raise ShapeError(f"{what} takes arrays, got a {kind} among them.")
    library, _ = common_library(arrays, what)
    sizes = operation.sizes_from_arrays([array.shape for array in arrays])
    pairs = zip(arrays, operation.inputs, strict=True)
    dtypes = {array.dtype for array, tensor in pairs if tensor.dtype is None}
    if len(dtypes) != 1:
        found = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise ShapeError(f"{operation.name} takes arrays of one dtype, got {found}.")
    if dtype is not None and operation.check_dtype(dtype) != canonical_dtype(*dtypes):
        found = canonical_dtype(*dtypes)
        raise ShapeError(f"{what}: the arrays are {found}, not {dtype}; leave dtype out.")
    layout = "packed" if all(map(library.aligned, arrays)) else "unaligned"
    if not all(map(library.packed, arrays)):
        layout = "strided"
    flags = flags_of(operation, options)
    return Problem.of(operation, sizes, dtypes.pop(), layout=layout, **flags)


def device_of_arrays(arrays: tuple[Any, ...], named: str | None) -> Device:
    """The device that arrays are on; ShapeError when the caller names another.

    A name that several equal GPUs share, such as `h200`, means the one with the arrays.
    """
    place = library_of(arrays[0]).place(arrays[0])
    device = find_device("cpu" if place is None else place_name(place))
    asked = device if named is None else find_device(named)
    one_card = str(named).strip().lower().startswith(("cuda:", "gpu-", "mig-"))
    if asked.identity != device.identity or (one_card and asked != device):
        raise ShapeError(
            f"device={named!r} is {asked.label}, but the arrays are on {place_name(place)}; "
            f"leave device out, or move the arrays."
        )
    return device


def flags_of(operation: Operation, options: Mapping[str, Any]) -> dict[str, Any]:
    """The operation's flags among the options; anything unknown raises UnknownNameError."""
    known = (*OPTIONS, *operation.scalars)
    flags = {name: value for name, value in options.items() if name not in known}
    for name in flags:
        if name not in operation.flags:
            kind = f"option of dispatch for {operation.name}"
            raise UnknownNameError(kind, name, (*operation.flags, *known))
    return flags

"""The registry: operations and their variants by name, and the decorators that fill it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal

from autotune.errors import DeclarationError, UnknownNameError, UserError
from autotune.model.operation import Operation, Tensor, parse_tensors
from autotune.model.problem import Config, Problem
from autotune.model.tunable import Tunable
from autotune.model.variant import Intermediate, Pass, Requirement, Run, Unit, Variant


class Registry:
    """Operations and variants by name; one per process (`autotune.registry.registry`).

    `load` brings the installed plugins; `autotune.plugins` sets it.
    """

    load: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {}
        self._variants: dict[str, dict[str, Variant]] = {}
        self._proposals: dict[str, Callable[[Any], Iterable[Problem]]] = {}
        self._lock = threading.RLock()
        self.version = 0

    def add_operation(self, operation: Operation) -> None:
        """Register; the same name from another function raises DeclarationError."""
        with self._lock:
            old = self._operations.get(operation.name)
            if old is not None and _origin(old.reference) != _origin(operation.reference):
                raise DeclarationError(
                    f"operation {operation.name!r} is already registered by "
                    f"{_origin(old.reference)}; choose another name."
                )
            self._operations[operation.name] = operation
            self._variants.setdefault(operation.name, {})
            self.version += 1

    def add_variant(self, variant: Variant) -> None:
        """Register; the same name from another function raises DeclarationError."""
        with self._lock:
            group = self._variants.setdefault(variant.operation.name, {})
            old = group.get(variant.name)
            if old is not None and _origin(old.source) != _origin(variant.source):
                raise DeclarationError(
                    f"variant {variant.operation.name}/{variant.name} is already registered by "
                    f"{_origin(old.source)}; choose another name."
                )
            group[variant.name] = variant
            self.version += 1

    def operation(self, name: str | Operation) -> Operation:
        """The operation of that name; UnknownNameError with the nearest spelling."""
        if isinstance(name, Operation):
            return name
        if not isinstance(name, str):
            raise UserError(f"an operation goes by its name or as it was declared, got {name!r}.")
        try:
            return self._operations[name]
        except KeyError:
            raise UnknownNameError("operation", name, self._operations) from None

    def operations(self) -> tuple[Operation, ...]:
        """All operations in order of registration."""
        return tuple(self._operations.values())

    def variants(self, operation: str | Operation) -> tuple[Variant, ...]:
        """All variants of an operation in order of registration."""
        return tuple(self._variants.get(self.operation(operation).name, {}).values())

    def variant(self, operation: str | Operation, name: str) -> Variant:
        """One variant; UnknownNameError with the nearest spelling."""
        group = self._variants.get(self.operation(operation).name, {})
        try:
            return group[name]
        except KeyError:
            kind = f"variant of {self.operation(operation).name}"
            raise UnknownNameError(kind, name, group) from None

    def forget(self, module: str) -> None:
        """Take back every operation, variant and proposal that a module declared."""
        with self._lock:
            for name, operation in list(self._operations.items()):
                if operation.reference.__module__ == module:
                    del self._operations[name], self._variants[name]
            for group in self._variants.values():
                for name, variant in list(group.items()):
                    if getattr(variant.source, "__module__", None) == module:
                        del group[name]
            for origin in [each for each in self._proposals if each.startswith(f"{module}.")]:
                del self._proposals[origin]
            self.version += 1

    def add_proposal(self, propose: Callable[[Any], Iterable[Problem]]) -> None:
        """Register a function from a device to problems worth tuning on it unasked."""
        with self._lock:
            self._proposals[_origin(propose)] = propose
            self.version += 1

    def proposed_problems(self, device: Any) -> tuple[Problem, ...]:
        """What the plugins propose to tune on a device, in order, each problem once."""
        proposed = (problem for each in self._proposals.values() for problem in each(device))
        return tuple(dict.fromkeys(proposed))


registry = Registry()

_APPLIED = frozenset({"threads", "placement"})
"""Tunables that are applied around a call; its function need not take them."""


def _origin(function: Callable[..., Any] | None) -> str:
    code = inspect.unwrap(function) if function else None
    return f"{getattr(code, '__module__', '?')}.{getattr(code, '__qualname__', '?')}"


def operation(
    *,
    inputs: str,
    outputs: str,
    name: str | None = None,
    dims: str | None = None,
    shape: str | None = None,
    plain: Callable[..., Any] | None = None,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Operation]:
    """Declare an operation; the decorated function is its float64 reference.

    `inputs` and `outputs` are written "q[B,H,Nq,D] k[B,Hkv,Nk,D]"; an output with an input's name
    is updated in place. `dims` fixes the order of the dims (default: as they first appear),
    `shape` the positional form. Further fields are those of `Operation`; of these `axes` say in
    which dims what was measured may differ from what it serves: by default in any.
    """
    arrays_in, arrays_out = parse_tensors(inputs), parse_tensors(outputs)
    order = tuple(dims.split()) if dims else _dims_as_met((*arrays_in, *arrays_out))
    for key in ("aliases", "defaults", "flags", "scalars", "tolerance"):
        if key in fields:
            fields[key] = MappingProxyType(dict(fields[key]))

    def declare(reference: Callable[..., Any]) -> Operation:
        declared = Operation(
            name=name or reference.__name__,
            dims=order,
            inputs=arrays_in,
            outputs=arrays_out,
            reference=reference,
            plain=plain or reference,
            shape=tuple(shape.split()) if shape else (),
            doc=inspect.getdoc(reference) or "",
            **fields,
        )
        registry.add_operation(declared)
        return declared

    return declare


def _dims_as_met(tensors: Sequence[Tensor]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dim for tensor in tensors for dim in tensor.dims))


def variant(
    operation: Operation | str,
    name: str | None = None,
    *,
    device: str = "cpu",
    dtypes: Sequence[str] = (),
    passes: Sequence[Pass] = (),
    intermediates: Sequence[Intermediate] = (),
    tunables: Sequence[Tunable] = (),
    constraints: Sequence[str] = (),
    requires: Sequence[Requirement] = (),
    blas: Literal["serial", "parallel"] | None = None,
    unit: Unit | None = None,
    parts: Sequence[Variant] = (),
    deterministic: bool | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a variant of an operation, which may be named; the function is returned unchanged.

    Either a builder `f(problem, config)` that returns
    `run(*inputs, *outputs, *intermediates, *scalars)`, or the kernel itself: a function whose
    parameters are named after inputs, outputs, intermediates, scalars, flags and tunables, in any
    order. A kernel that takes no output returns its outputs.
    """

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        target = _named(operation)
        parameters = _parameters(function)
        builder = list(parameters)[:2] == ["problem", "config"]
        arrays = [*target.inputs, *target.fresh_outputs]
        known = [*(array.name for array in arrays), *(array.name for array in intermediates)]
        declared = Variant(
            name=name or function.__name__,
            operation=target,
            build=function if builder else _Direct(function, known, target),
            device=device,
            dtypes=tuple(target.check_dtype(dtype) for dtype in dtypes),
            passes=tuple(passes),
            intermediates=tuple(intermediates),
            tunables=tuple(tunables),
            constraints=tuple(constraints),
            requires=tuple(requires),
            blas=blas,
            unit=unit,
            parts=tuple(parts),
            deterministic=deterministic,
            returns=not builder and not _takes_outputs(parameters, target),
            source=function,
            doc=inspect.getdoc(function) or "",
        )
        if not builder:
            _check_parameters(declared, parameters, known)
        registry.add_variant(declared)
        return function

    return declare


def _named(operation: Operation | str) -> Operation:
    """The operation; the installed plugins are loaded where none of that name is known yet."""
    with suppress(UnknownNameError):
        return registry.operation(operation)
    registry.load()
    return registry.operation(operation)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(getattr(function, "py_func", function)).parameters


def _takes_outputs(parameters: Mapping[str, Any], operation: Operation) -> bool:
    fresh = [tensor.name for tensor in operation.fresh_outputs]
    return not fresh or any(name in parameters for name in fresh)


def _check_parameters(
    declared: Variant, parameters: Mapping[str, inspect.Parameter], arrays: Sequence[str]
) -> None:
    target = declared.operation
    for name in declared.tunable_names:
        if name not in parameters and name not in _APPLIED:
            raise DeclarationError(
                f"variant {target.name}/{declared.name}: its function has no parameter for the "
                f"tunable {name!r}; add one."
            )
    known = {*arrays, *target.scalars, *target.flags, *declared.tunable_names}
    for name, parameter in parameters.items():
        if name not in known and parameter.default is inspect.Parameter.empty:
            raise DeclarationError(
                f"variant {target.name}/{declared.name}: parameter {name!r} is no input, output, "
                f"intermediate, scalar, flag or tunable; known: {', '.join(sorted(known))}."
            )


class _Direct:
    """Adapts a kernel function with named parameters to the builder's contract."""

    def __init__(self, function: Callable[..., Any], arrays: list[str], target: Operation) -> None:
        self.function = function
        wanted = set(_parameters(function))
        if not _takes_outputs(_parameters(function), target):
            fresh = {tensor.name for tensor in target.fresh_outputs}
            arrays = [name for name in arrays if name not in fresh]
        self.names = [*arrays, *target.scalars]
        self.wanted = wanted

    def __call__(self, problem: Problem, config: Config) -> Run:
        """Bind flags and tunables; the returned function takes the rest by position."""
        fixed = {n: v for n, v in {**problem.flags, **config}.items() if n in self.wanted}
        parameters = list(_parameters(self.function))
        if parameters == self.names:
            return self.function
        function, names, wanted = self.function, self.names, self.wanted

        def run(*arguments: Any) -> Any:
            given = {n: a for n, a in zip(names, arguments, strict=True) if n in wanted}
            return function(**given, **fixed)

        return run

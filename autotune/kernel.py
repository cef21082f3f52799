"""Kernel: what dispatch hands out - a chosen candidate, bound to a problem, ready to call."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from autotune.errors import ShapeError, UnknownNameError
from autotune.model.problem import Config, Problem

if TYPE_CHECKING:
    from autotune.execution import Executable
    from autotune.serving import Served

_form = attrgetter("shape", "dtype")


class Kernel:
    """A candidate bound to a problem; call it with the operation's inputs in order.

    `variant`, `config`, `origin` (pinned, tuned, interpolated, family, predicted, reference) say
    what was chosen and on what grounds; `explain()` says it in words.
    """

    __slots__ = (
        "_call",
        "_empty",
        "_executable",
        "_input_forms",
        "_only",
        "_output_forms",
        "_returned",
        "_scalars",
        "_serve_next",
        "device",
        "problem",
        "served",
    )

    def __init__(
        self,
        problem: Problem,
        served: Served,
        *,
        device: Any,
        scalars: dict[str, float | None],
        serve_next: Callable[[str, BaseException], Served],
    ) -> None:
        import numpy as np

        from autotune.arrays import array_dtype

        operation = problem.operation
        self.problem, self.served, self.device = problem, served, device
        self._scalars = problem.scalars(scalars)
        self._serve_next = serve_next
        self._executable: Executable | None = None
        self._call: Callable[..., Any] | None = None
        self._empty = np.empty
        self._input_forms, self._output_forms = (
            tuple((t.shape(problem.sizes), array_dtype(problem.element_type(t.dtype))) for t in tensors)
            for tensors in (operation.inputs, operation.fresh_outputs)
        )
        names = [tensor.name for tensor in operation.outputs]
        self._returned = [names.index(n) for n in names if n not in operation.residuals]
        self._only = self._returned[0] if len(self._returned) == 1 else None

    @property
    def operation(self) -> str:
        """Name of the operation."""
        return self.problem.operation.name

    @property
    def variant(self) -> str:
        """Name of the chosen variant."""
        return self.served.variant

    @property
    def config(self) -> Config:
        """The chosen config."""
        return self.served.config

    @property
    def origin(self) -> str:
        """On what grounds it was chosen."""
        return self.served.origin

    def explain(self) -> str:
        """Why this candidate serves this problem, in a few lines."""
        return self.served.explanation

    def __call__(
        self, *inputs: Any, out: Any = None, residuals: bool = False, **scalars: float | None
    ) -> Any:
        """Run on the given arrays (any strides) and return the output, or a tuple of outputs.

        `out` is an array, or a tuple with every output, to write into. Residuals such as `lse` are
        returned only with `residuals=True`. Raises ShapeError (a ValueError) naming what does not
        fit.
        """
        if tuple(map(_form, inputs)) != self._input_forms:
            self._explain_inputs(inputs)
        values = self.problem.scalars(self._named_scalars(scalars)) if scalars else self._scalars
        call, results = self._call, None  # type: Any, Any
        if call is not None and out is None:
            empty = self._empty
            results = [empty(shape, dtype) for shape, dtype in self._output_forms]
        elif out is not None:
            results = self._given_outputs(out)
        try:
            if call is not None:
                call(*inputs, *results, *values)
            else:
                results = self._run(inputs, results, values)
        except Exception as error:
            results = self._run_next_best(error, inputs, results, values)
        if self._only is not None and not residuals:
            return results[self._only]
        return self._several(results, residuals)

    def _run(self, inputs: Any, outputs: Any, values: tuple[float, ...]) -> Any:
        """The general way: builds at the first call, lets a variant make its own outputs."""
        if self._executable is None:
            self._use(self.served.build())
        executable = self._executable
        assert executable is not None
        if outputs is None and executable.takes_outputs:
            outputs = self._new_outputs()
        return executable(*inputs, *(outputs or ()), *values)

    def _use(self, executable: Executable) -> None:
        """From now on call this one; directly, where its outputs are just what it is given."""
        self._executable = executable
        direct = executable.takes_outputs and not self.problem.operation.updated
        self._call = executable.call if direct else None

    def _new_outputs(self) -> list[Any]:
        return [self._empty(shape, dtype) for shape, dtype in self._output_forms]

    def _given_outputs(self, out: Any) -> list[Any]:
        """The caller's arrays, checked; residuals that are left out are made."""
        given = list(out) if isinstance(out, tuple | list) else [out]
        if len(given) != len(self._output_forms):
            given = self._with_residuals(given)
        if tuple(map(_form, given)) != self._output_forms:
            self._explain_outputs(given)
        for array, tensor in zip(given, self.problem.operation.fresh_outputs, strict=True):
            if not array.flags.writeable:
                raise ShapeError(
                    f"{self.operation}: out {tensor} is read-only; pass a writable one."
                )
        return given

    def _with_residuals(self, given: list[Any]) -> list[Any]:
        if len(given) != len(self._returned):
            names = ", ".join(tensor.name for tensor in self.problem.operation.fresh_outputs)
            raise ShapeError(f"{self.operation}: out takes {names}; got {len(given)} arrays.")
        every = self._new_outputs()
        for index, array in zip(self._returned, given, strict=True):
            every[index] = array
        return every

    def _several(self, results: Any, residuals: bool) -> Any:
        if residuals:
            return tuple(results) if len(results) > 1 else results[0]
        return tuple([results[index] for index in self._returned])

    def _named_scalars(self, given: dict[str, float | None]) -> dict[str, float | None]:
        names = list(self.problem.operation.scalars)
        for name in given:
            if name not in names:
                raise UnknownNameError(f"scalar of {self.operation}", name, names)
        return {**dict(zip(names, self._scalars, strict=True)), **given}

    def _run_next_best(
        self, error: Exception, inputs: Any, outputs: Any, values: tuple[float, ...]
    ) -> Any:
        """Quarantine the failed variant and let the next best serve the call."""
        if self.problem.operation.updated:
            raise error  # the inputs may be half updated; a second run would not be the same call
        while True:
            self.served = self._serve_next(self.variant, error)
            try:
                self._use(self.served.build())
                return self._run(inputs, outputs, values)
            except Exception as next_error:
                if self.origin == "reference":
                    raise
                error = next_error

    def _explain_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Raise the ShapeError that names what does not fit."""
        operation = self.problem.operation
        sizes = operation.sizes_from_arrays([array.shape for array in inputs])
        for tensor, array, (shape, dtype) in zip(
            operation.inputs, inputs, self._input_forms, strict=True
        ):
            if array.shape != shape:
                differing = [
                    f"{dim}={sizes[dim]} (dispatched for {self.problem.sizes[dim]})"
                    for dim in tensor.dims
                    if sizes[dim] != self.problem.sizes[dim]
                ]
                raise ShapeError(
                    f"{operation.name}: {tensor.name} has {', '.join(differing)}; dispatch again."
                )
            if array.dtype != dtype:
                raise ShapeError(
                    f"{operation.name}: {tensor.name} is {array.dtype}, dispatched for {dtype}."
                )

    def _explain_outputs(self, given: list[Any]) -> None:
        tensors = self.problem.operation.fresh_outputs
        for array, (shape, dtype), tensor in zip(given, self._output_forms, tensors, strict=True):
            if array.shape != shape or array.dtype != dtype:
                found = f"{array.dtype} {array.shape}"
                raise ShapeError(
                    f"{self.operation}: out {tensor} must be {dtype} {shape}, got {found}."
                )

    def __repr__(self) -> str:
        return f"<Kernel {self.problem} -> {self.variant} [{self.config}] ({self.origin})>"

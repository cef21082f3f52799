"""Kernel: what dispatch hands out - a chosen candidate, bound to a problem, ready to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.errors import ShapeError
from autotune.model.problem import Config, Problem

if TYPE_CHECKING:
    from autotune.execution import Executable
    from autotune.serving import Served


class Kernel:
    """A candidate bound to a problem; call it with the operation's inputs in order.

    `variant`, `config`, `origin` (pinned, tuned, interpolated, family, predicted, reference) say
    what was chosen and on what grounds; `explain()` says it in words.
    """

    __slots__ = (
        "_allocate",
        "_dtype",
        "_dtypes",
        "_executable",
        "_returned",
        "_scalars",
        "_serve_next",
        "_shapes",
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

        operation = problem.operation
        self.problem = problem
        self.served = served
        self.device = device
        self._scalars = problem.scalars(scalars)
        self._serve_next = serve_next
        self._executable: Executable | None = None
        self._shapes = tuple(tensor.shape(problem.sizes) for tensor in operation.inputs)
        self._dtypes = tuple(np.dtype(t.dtype or problem.dtype) for t in operation.inputs)
        self._allocate = tuple(
            (tensor.shape(problem.sizes), np.dtype(tensor.dtype or problem.dtype))
            for tensor in operation.fresh_outputs
        )
        names = [tensor.name for tensor in operation.outputs]
        self._returned = [names.index(n) for n in names if n not in operation.residuals]

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
        if tuple([a.shape for a in inputs]) != self._shapes:
            self._explain_shapes(inputs)
        for array, dtype in zip(inputs, self._dtypes, strict=True):
            if array.dtype != dtype:
                self._explain_dtype(inputs)
        values = self.problem.scalars(self._named_scalars(scalars)) if scalars else self._scalars
        executable, outputs = self._executable, ()
        try:
            if executable is None:
                executable = self._executable = self.served.build()
            if executable.takes_outputs or out is not None:
                outputs = self._outputs(out)
            results = executable(*inputs, *outputs, *values)
        except ShapeError:
            raise
        except Exception as error:
            results = self._run_next_best(error, inputs, self._outputs(out), values)
        return self._pick(results, residuals)

    def _outputs(self, out: Any) -> tuple[Any, ...]:
        """Arrays for every fresh output: the caller's, or new ones."""
        from numpy import empty

        if out is None:
            return tuple([empty(shape, dtype) for shape, dtype in self._allocate])
        given = list(out) if isinstance(out, tuple | list) else [out]
        tensors = self.problem.operation.fresh_outputs
        if len(given) != len(self._allocate):
            # The residuals may be left out, as they are from what a call returns.
            if len(given) != len(self._returned):
                names = ", ".join(tensor.name for tensor in tensors)
                raise ShapeError(f"{self.operation}: out takes {names}; got {len(given)} arrays.")
            given = [
                given[self._returned.index(index)]
                if index in self._returned
                else empty(shape, dtype)
                for index, (shape, dtype) in enumerate(self._allocate)
            ]
        for array, (shape, dtype), tensor in zip(given, self._allocate, tensors, strict=True):
            if array.shape != shape or array.dtype != dtype:
                found = f"{array.dtype} {array.shape}"
                raise ShapeError(
                    f"{self.operation}: out {tensor} must be {dtype} {shape}, got {found}."
                )
        return tuple(given)

    def _pick(self, results: tuple[Any, ...], residuals: bool) -> Any:
        if residuals:
            return results if len(results) > 1 else results[0]
        if len(self._returned) == 1:
            return results[self._returned[0]]
        return tuple([results[index] for index in self._returned])

    def _named_scalars(self, given: dict[str, float | None]) -> dict[str, float | None]:
        names = list(self.problem.operation.scalars)
        for name in given:
            if name not in names:
                from autotune.errors import UnknownNameError

                raise UnknownNameError(f"scalar of {self.operation}", name, names)
        return {**dict(zip(names, self._scalars, strict=True)), **given}

    def _run_next_best(
        self, error: Exception, inputs: Any, outputs: Any, values: tuple[float, ...]
    ) -> tuple[Any, ...]:
        """Quarantine the failed variant and let the next best serve the call."""
        if self.problem.operation.updated:
            raise error  # the inputs may be half updated; a second run would not be the same call
        while True:
            self.served = self._serve_next(self.variant, error)
            try:
                self._executable = self.served.build()
                return self._executable(*inputs, *outputs, *values)
            except Exception as next_error:
                if self.origin == "reference":
                    raise
                error = next_error

    def _explain_shapes(self, inputs: tuple[Any, ...]) -> None:
        operation = self.problem.operation
        sizes = operation.sizes_from_arrays([array.shape for array in inputs])
        for tensor, array, shape in zip(operation.inputs, inputs, self._shapes, strict=True):
            if array.shape != shape:
                differing = [
                    f"{dim}={sizes[dim]} (dispatched for {self.problem.sizes[dim]})"
                    for dim in tensor.dims
                    if sizes[dim] != self.problem.sizes[dim]
                ]
                raise ShapeError(
                    f"{operation.name}: {tensor.name} has {', '.join(differing)}; dispatch again."
                )

    def _explain_dtype(self, inputs: tuple[Any, ...]) -> None:
        tensors = self.problem.operation.inputs
        for tensor, array, dtype in zip(tensors, inputs, self._dtypes, strict=True):
            if array.dtype != dtype:
                raise ShapeError(
                    f"{self.operation}: {tensor.name} is {array.dtype}, dispatched for {dtype}."
                )

    def __repr__(self) -> str:
        return f"<Kernel {self.problem} -> {self.variant} [{self.config}] ({self.origin})>"

"""Kernel: what dispatch hands out - a chosen candidate, bound to a problem, ready to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune.binding import (
    Binding,
    bind,
    explain_inputs,
    explain_outputs,
    fits,
    saw,
    takes,
    was_seen,
)
from autotune.errors import ShapeError, UnknownNameError
from autotune.failover import NOBODYS_FAULT, Seat
from autotune.forked import require_cuda
from autotune.libraries import library_of
from autotune.model.problem import Config, Problem
from autotune.overlap import kept_updates
from autotune.workspace import Layout, layout

if TYPE_CHECKING:
    from autotune.execution import Executable
    from autotune.serving import Served


class Kernel:
    """A candidate bound to a problem; call it with the operation's inputs in order.

    `variant`, `config`, `origin` (pinned, tuned, interpolated, family, predicted, reference) say
    what was chosen and on what grounds; `explain()` says it in words.
    """

    __slots__ = (
        "_binding",
        "_bindings",
        "_kept",
        "_only",
        "_proven",
        "_returned",
        "_scalars",
        "_seat",
        "_updates",
        "device",
        "problem",
    )

    def __init__(
        self,
        problem: Problem,
        served: Served,
        *,
        device: Any,
        scalars: dict[str, float | None],
        serve_next: Callable[[Served, BaseException], Served],
    ) -> None:
        operation = problem.operation
        self.problem, self.device = problem, device
        self._scalars = problem.scalars(scalars)
        self._updates = bool(operation.updated)
        self._seat = Seat(served, serve_next, direct=not self._updates)
        self._proven: Any = None  # what has updated inputs without failing
        self._binding: Binding | None = None  # that of the last call
        self._bindings: dict[type, Binding] = {}
        self._kept: list[Any] = []  # arrays made during a capture, which the graph uses
        names = [tensor.name for tensor in operation.outputs]
        self._returned = [names.index(n) for n in names if n not in operation.residuals]
        self._only = self._returned[0] if len(self._returned) == 1 else None

    @property
    def served(self) -> Served:
        """What was chosen, on what grounds; another after a failure."""
        return self._seat.served

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

    @property
    def workspace_bytes(self) -> int:
        """Bytes that `workspace=` of a call must have; 0 when it needs none."""
        return self._layout().nbytes

    def _layout(self) -> Layout:
        if self._seat.executable is not None:
            return self._seat.executable.layout
        return layout(self.served.candidate, self.problem, self.config)

    def explain(self) -> str:
        """Why this candidate serves this problem, in a few lines."""
        return self.served.explanation

    def __call__(
        self,
        *inputs: Any,
        out: Any = None,
        residuals: bool = False,
        workspace: Any = None,
        **scalars: float | None,
    ) -> Any:
        """Run on the given arrays (any strides) and return the output, or a tuple of outputs.

        The arrays are NumPy's, CuPy's or torch's, outputs and temporaries are made by the same
        library; on a GPU everything happens on that library's current stream. `out` is an array,
        or a tuple with every output, to write into. Residuals such as `lse` are returned only
        with `residuals=True`. `workspace` is an array of `workspace_bytes` bytes (uint8) for the
        temporaries. Inputs may overlap what is written to: such an input is copied first. Raises
        ShapeError (a ValueError) naming what does not fit, UserError for a tensor whose gradient
        torch would record, CapturingError for a first call during CUDA graph capture.
        """
        binding = self._binding
        given = () if out is None else out if out.__class__ is tuple else (out,)
        writes = given != () or self._updates
        seen = binding is not None and writes and was_seen(binding, inputs, given)
        if binding is None or not (seen or takes(binding, inputs, given)):
            if self._on_host_tensors(inputs):
                from autotune.cuda.tensors import run_on_views

                options = {"residuals": residuals, "workspace": workspace, **scalars}
                return run_on_views(self, inputs, out, **options)
            binding, given = self._checked(inputs, out, scalars)
        if binding.guard is not None:
            binding.guard(inputs)
        values = self._values(scalars) if scalars else self._scalars
        if workspace is not None:
            self._layout().check(binding.library, binding.place, workspace, self.operation)
        context = None if binding.around is None else binding.around()
        if context is not None:
            with context:
                if writes and not seen:
                    inputs = self._apart(binding, inputs, given)
                results = self._run(binding, inputs, given, values, workspace)
            return self._returned_of(results, residuals)
        if writes and not seen:
            inputs = self._apart(binding, inputs, given)
        call = self._seat.call if workspace is None else None  # read once: threads may set it
        if call is None:
            results = self._run(binding, inputs, given, values, workspace)
        else:
            complete = len(given) == len(binding.outputs)
            results = given if complete else self._with_made(binding, given)
            try:
                call(*inputs, *results, *values)
            except Exception as error:
                results = self._run_next_best(error, call, binding, inputs, results, values)
        if self._only is not None and not residuals:
            return results[self._only]
        return self._returned_of(results, residuals)

    def _apart(self, binding: Binding, inputs: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
        """The inputs, those that share memory with what is written to as copies.

        Copies that a graph which is being captured reads from are kept alive.
        """
        apart = binding.apart(inputs, given)
        if apart is inputs:
            saw(binding, (*inputs, *given))
        elif binding.recording is not None and binding.recording():
            self._kept.append(apart)
        return apart

    def _run(
        self,
        binding: Binding,
        inputs: tuple[Any, ...],
        outputs: Any,
        values: tuple[float, ...],
        workspace: Any,
    ) -> Any:
        call = self._seat.call if workspace is None else None
        if call is None:
            return self._run_in_general(binding, inputs, outputs, values, workspace)
        outputs = self._with_made(binding, outputs)
        try:
            call(*inputs, *outputs, *values)
        except Exception as error:
            return self._run_next_best(error, call, binding, inputs, outputs, values)
        return outputs

    def _run_in_general(
        self,
        binding: Binding,
        inputs: tuple[Any, ...],
        outputs: Any,
        values: tuple[float, ...],
        workspace: Any,
    ) -> Any:
        """Builds at the first call; lets a variant make its own outputs, or use a workspace."""
        executable = self._built(binding)
        if outputs or executable.takes_outputs:
            outputs = self._with_made(binding, outputs)
        before = []
        if self._updates and self._proven is not executable:  # until it has shown that it runs
            before = kept_updates(self.problem.operation, binding.library, inputs)
        try:
            results = executable(*inputs, *outputs, *values, workspace=workspace)
        except Exception as error:
            for array, copy in before:
                array[...] = copy
            if self._updates and not before:
                self._refuse(error, executable)
            return self._run_next_best(error, executable, binding, inputs, outputs, values)
        self._proven = executable
        return results

    def _built(self, binding: Binding) -> Executable:
        """What runs; during a capture only what is built already."""
        if self._seat.executable is None and binding.place is not None:
            from autotune.cuda.streams import refuse_during_capture

            require_cuda(self.operation)
            refuse_during_capture(f"{self.operation} ({self.variant})")
        return self._seat.built()

    def _refuse(self, error: Exception, executable: Any) -> None:
        """Inputs may be half updated: a second run would not be the same call."""
        if not isinstance(error, NOBODYS_FAULT):
            self._seat.give_way(executable, error)
            error.add_note(
                f"{self.operation}: its inputs may be half updated; the next call is served by "
                f"{self.variant}."
            )
        raise error

    def _with_made(self, binding: Binding, given: Sequence[Any]) -> Sequence[Any]:
        """Every fresh output: the caller's, and new ones for those that are left out.

        What a graph that is being captured will write to at each replay is kept alive.
        """
        if len(given) == len(binding.outputs):
            return given
        made = binding.make_residuals() if given else binding.make()
        if binding.recording is not None and binding.recording():
            self._kept.append(made)
        if not given:
            return made
        parts, residuals = iter(given), iter(made)
        return [next(residuals if hidden else parts) for hidden in binding.hidden]

    def _on_host_tensors(self, inputs: tuple[Any, ...]) -> bool:
        """Whether these are torch's tensors and this kernel runs on the CPU."""
        host = getattr(self.device, "index", None) is None
        return host and bool(inputs) and library_of(inputs[0]).name == "torch"

    def _bind(self, inputs: tuple[Any, ...]) -> Binding:
        """The binding for other arrays than those of the last call; ShapeError if none fits."""
        for array in inputs:
            library_of(array)
        self.problem.operation.sizes_from_arrays([array.shape for array in inputs])
        kind = inputs[0].__class__
        binding = self._bindings.get(kind)
        if binding is None or not fits(binding, inputs):
            binding = bind(self.problem, self.device, inputs[0])
            explain_inputs(self.problem, binding, inputs)
            self._bindings[kind] = binding
        self._binding = binding
        return binding

    def _checked(
        self, inputs: tuple[Any, ...], out: Any, named: Mapping[str, Any]
    ) -> tuple[Binding, tuple[Any, ...]]:
        """The binding for arrays that are not just like those before, and the given outputs."""
        if named:
            self._refuse_arrays(named)
        binding = self._binding
        if binding is None or not fits(binding, inputs):
            binding = self._bind(inputs)
        if out is None:
            return binding, ()
        given = tuple(out) if isinstance(out, tuple | list) else (out,)
        explain_outputs(self.problem, binding, given)
        return binding, given

    def _refuse_arrays(self, named: Mapping[str, Any]) -> None:
        names = [tensor.name for tensor in self.problem.operation.inputs]
        if not named.keys().isdisjoint(names):
            raise ShapeError(f"{self.operation} takes its arrays in order: ({', '.join(names)}).")

    def _returned_of(self, results: Any, residuals: bool) -> Any:
        """What the caller gets of all outputs."""
        if residuals:
            return tuple(results) if len(results) > 1 else results[0]
        shown = tuple([results[index] for index in self._returned])
        return shown if self._only is None else shown[0]

    def _values(self, given: dict[str, float | None]) -> tuple[float, ...]:
        """The scalars of a call, those of the kernel where it gives none."""
        names = self.problem.operation.scalars
        plain = True
        for name, value in given.items():
            if name not in names:
                raise UnknownNameError(f"scalar of {self.operation}", name, list(names))
            plain = plain and value.__class__ is float
        named: dict[str, Any] = {**dict(zip(names, self._scalars, strict=True)), **given}
        return tuple(named.values()) if plain else self.problem.scalars(named)

    def _run_next_best(
        self,
        error: Exception,
        failed: Any,
        binding: Binding,
        inputs: tuple[Any, ...],
        outputs: Any,
        values: tuple[float, ...],
    ) -> Any:
        """Quarantine what failed and let the next best serve the call."""
        if isinstance(error, NOBODYS_FAULT):
            raise error
        self._seat.give_way(failed, error)
        return self._run_in_general(binding, inputs, outputs, values, None)

    def __repr__(self) -> str:
        return f"<Kernel {self.problem} -> {self.variant} [{self.config}] ({self.origin})>"

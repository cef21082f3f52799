"""Executable: a candidate built for a problem on this machine, ready to be called many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from autotune.arrays import Array, empty_aligned
from autotune.compiled import keep_compiled
from autotune.device import CpuDevice
from autotune.device.placement import place
from autotune.device.threads import Scope, ThreadRecord, ThreadSettings, prepare
from autotune.errors import DeclarationError, UnavailableError
from autotune.forked import require_openmp
from autotune.libraries import Carver, Form, Pooled, library_of
from autotune.model import Config, Operation, Problem, Variant
from autotune.reach import reach, reach_of
from autotune.workspace import Layout, layout

Call = Callable[..., Any]
_Set = tuple[Any, Sequence[Any]]  # what keeps the memory of temporaries, and they themselves

_KEPT_SETS = 8
_KEPT_BYTES = 1 << 20  # of a set of temporaries on a GPU
_KEPT_STREAMS = 16


class Executable:
    """A built candidate.

    `executable(*inputs, *outputs, *scalars)` runs it with its own threads and placement and
    returns the tuple of the operation's outputs, in declared order: the arrays that were passed
    (inputs that are updated in place included) or, when a variant returns its outputs and none
    were passed, new ones. Safe to call from several threads at once.

    `call` is the same without that tuple: it takes the outputs only if `takes_outputs`, and
    returns what the kernel returns. Its temporaries are its own on a CPU and come from the
    caller's pool (CuPy's or torch's) on a GPU; `workspace=` has them in given bytes.

    On a GPU, building compiles and loads the kernels that the builder made launchers of.

    Raises whatever the variant's builder raises, UnavailableError when this process cannot give it
    the threads or the placement of its config.
    """

    def __init__(
        self, variant: Variant, problem: Problem, config: Mapping[str, Any], device: Any
    ) -> None:
        self.variant, self.problem, self.config = variant, problem, Config(dict(config))
        self.takes_outputs = not variant.returns
        self.layout = layout(variant, problem, self.config)
        self._on_gpu = getattr(device, "kind", "cpu") == "cuda"
        self._scope: Scope | None = None
        self._carvers: dict[type, Carver] = {}
        run = self._built_for_gpu() if self._on_gpu else self._built_for_cpu(device)
        operation = problem.operation
        self._inputs, self._fresh = len(operation.inputs), len(operation.fresh_outputs)
        self._scalars = len(operation.scalars)
        self.call = self._bind(run)
        self._outputs = _output_getter(operation)

    def __call__(self, *arguments: Any, workspace: Any = None) -> tuple[Any, ...]:
        if self.takes_outputs:
            if workspace is None:
                self.call(*arguments)
            else:
                self._call_in(workspace, *arguments)
            return self._outputs(arguments)
        call = self.call if workspace is None else partial(self._call_in, workspace)
        return self._call_returning(call, arguments)

    @property
    def thread_settings(self) -> ThreadSettings | None:
        """What its threads run with; None when it has no say in that."""
        return self._scope.settings if self._scope is not None else None

    def thread_record(self) -> ThreadRecord | None:
        """Where its threads run, by asking them; None when it has no say in that."""
        return self._scope.record() if self._scope is not None else None

    def _bind(self, run: Call) -> Call:
        self._run = _within(self._scope, run) if self._scope is not None else run
        self._arrays = self._inputs + (self._fresh if self.takes_outputs else 0)
        if not self.layout.forms:
            return self._run
        if self._on_gpu:
            return _with_pooled(self._run, self._arrays, self.layout)
        return _with_intermediates(self._run, self._arrays, self.layout.forms)

    def _built_for_cpu(self, device: Any) -> Call:
        """Build, with compiled code kept on disk, and a scope for the threads."""
        found = reach_of(self.variant)
        keep_compiled(found)
        run = self.variant.build(self.problem, self.config)
        built = reach(run, after=found)
        keep_compiled(built)
        parallel = found.parallel or built.parallel
        if parallel or built.openmp:
            require_openmp(f"{self.problem.operation.name}/{self.variant.name}")
        try:
            settings = thread_settings(self.variant, self.config, device, numba=parallel)
            if settings is not None and built.openmp:
                settings = replace(settings, numba=False, openmp=built.openmp)
            self._scope = prepare(settings) if settings is not None else None
        except (ValueError, OSError) as error:
            raise UnavailableError(str(error)) from error
        return run

    def _built_for_gpu(self) -> Call:
        """Build, and have every kernel ready that the builder made a launcher of."""
        from autotune.cuda.launch import collecting
        from autotune.cuda.raw import compile_raw, compiled_anew

        with collecting() as launchers, compiled_anew():
            run = self.variant.build(self.problem, self.config)
            compile_raw(run)
        for launcher in launchers:
            launcher.prepare()
        return run

    def _call_in(self, workspace: Any, *arguments: Any) -> Any:
        """Call with the temporaries in an array of bytes."""
        carve = self._carvers.get(workspace.__class__)
        if carve is None:
            carve = library_of(workspace).carver(self.layout.parts)
            self._carvers[workspace.__class__] = carve
        temporaries = carve(workspace)
        return self._run(*arguments[: self._arrays], *temporaries, *arguments[self._arrays :])

    def _call_returning(self, call: Call, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call a variant that returns its outputs; copy them into the arrays given, if any."""
        inputs = arguments[: self._inputs]
        behind = len(arguments) - self._scalars
        given = arguments[self._inputs : behind]
        fresh = self.returned(call(*inputs, *arguments[behind:]))
        for target, result in zip(given, fresh, strict=False):
            target[...] = result
        return self._outputs((*inputs, *(given or fresh)))

    def returned(self, value: Any) -> tuple[Any, ...]:
        """What a variant that returns its outputs returned, as a tuple of the right length."""
        fresh = tuple(value) if isinstance(value, tuple | list) else (value,)
        if len(fresh) != self._fresh:
            raise DeclarationError(
                f"variant {self.problem.operation.name}/{self.variant.name} returned {len(fresh)} "
                f"arrays; the operation has {self._fresh} outputs."
            )
        return fresh


def _output_getter(operation: Operation) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """From (inputs, fresh outputs, ...) the outputs in declared order."""
    names = [tensor.name for tensor in (*operation.inputs, *operation.fresh_outputs)]
    positions = [names.index(tensor.name) for tensor in operation.outputs]
    first, last = positions[0], positions[-1]
    if positions == list(range(first, last + 1)):
        return itemgetter(slice(first, last + 1))
    return itemgetter(*positions)


def thread_settings(
    variant: Variant, config: Mapping[str, Any], device: Any, *, numba: bool
) -> ThreadSettings | None:
    """What a candidate's threads run with, or None when its declaration leaves them alone."""
    if not isinstance(device, CpuDevice) or ("threads" not in config and variant.blas is None):
        return None
    threads = int(config.get("threads", 1))
    cpus = place(device.topology, threads, str(config.get("placement", "free")))
    return ThreadSettings(threads, cpus, variant.blas, numba)


def _within(scope: Scope, call: Call) -> Call:
    enter, leave = scope.enter, scope.exit

    def run_within(*arguments: Any) -> Any:
        enter()
        try:
            return call(*arguments)
        finally:
            leave()

    return run_within


def _with_pooled(call: Call, arrays: int, layout: Layout) -> Call:
    """Pass temporary arrays from the pool of the library that the arguments are of.

    Given back after the call, they are used again in the order of the stream. Of small ones, whose
    making would take longer than a launch, a few sets stay with the stream instead. A CUDA graph
    that is being captured writes to its temporaries at each replay: those are its own, which torch
    sees to itself; of CuPy's they are kept as long as the executable, a set for each captured call.
    """
    from autotune.cuda.streams import PER_THREAD, stream_state

    state = stream_state()
    makers: dict[type, Pooled] = {}
    pools: dict[tuple[type, int], list[_Set]] = {}
    of_graphs: list[_Set] = []
    small = layout.nbytes <= _KEPT_BYTES

    def fresh(array: Any) -> _Set:
        make = makers.get(array.__class__)
        if make is None:
            library = library_of(array)
            make = makers[array.__class__] = library.pooled(
                layout.parts, layout.nbytes, library.place(array)
            )
        return make()

    def pool_of(kind: type, stream: int, capturing: bool) -> list[_Set]:
        if not small or capturing or stream == PER_THREAD:
            return []
        if (kind, stream) not in pools and len(pools) >= _KEPT_STREAMS:
            pools.clear()
        return pools.setdefault((kind, stream), [])

    def run_with(*arguments: Any) -> Any:
        stream, capturing = state()
        pool = pool_of(arguments[0].__class__, stream, capturing)
        try:
            temporaries = pool.pop()
        except IndexError:
            temporaries = fresh(arguments[0])
        if capturing and library_of(arguments[0]).name != "torch":
            of_graphs.append(temporaries)
        result = call(*arguments[:arrays], *temporaries[1], *arguments[arrays:])
        if len(pool) < _KEPT_SETS:
            pool.append(temporaries)  # after the launches, so that the stream orders its uses
        return result

    return run_with


def _with_intermediates(call: Call, arrays: int, shapes: tuple[Form, ...]) -> Call:
    """Pass temporary arrays after the first `arrays` arguments, from a pool of sets.

    Taking from and giving back to a list are atomic, so that two calls at once get two sets.
    """
    pool: list[tuple[Array, ...]] = []

    def run_with(*arguments: Any) -> Any:
        try:
            temporaries = pool.pop()
        except IndexError:
            temporaries = tuple([empty_aligned(shape, dtype) for shape, dtype in shapes])
        try:
            return call(*arguments[:arrays], *temporaries, *arguments[arrays:])
        finally:
            if len(pool) < _KEPT_SETS:
                pool.append(temporaries)

    return run_with

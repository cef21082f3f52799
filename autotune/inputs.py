"""The arrays a candidate is checked and timed on: random, aligned, guarded, restorable."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.arrays import (
    Array,
    Guarded,
    array_dtype,
    is_floating,
    is_poison,
    poison,
    same_bits,
)
from autotune.errors import DeclarationError
from autotune.memory import HOST, Memory, allowed_cpus
from autotune.model import Problem, Tensor

_CHUNK = 1 << 20
_INTEGERS = (-8, 9)


@dataclass(frozen=True, slots=True)
class Buffers:
    """Inputs, outputs and scalars of one problem, ready to be passed to a candidate."""

    problem: Problem
    seed: int
    gain: float
    inputs: tuple[Guarded, ...]
    fresh: tuple[Guarded, ...]
    scalars: tuple[float, ...]
    memory: Memory
    _pristine: dict[int, Array]
    _unchanged: dict[int, Callable[[], bool]]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Inputs, fresh outputs and scalars, in the order in which they are passed."""
        return (*self.input_arrays, *(each.array for each in self.fresh), *self.scalars)

    @property
    def input_arrays(self) -> tuple[Array, ...]:
        """The inputs in declared order."""
        return tuple(each.array for each in self.inputs)

    @property
    def output_arrays(self) -> tuple[Array, ...]:
        """The outputs in declared order; an updated input is one of them."""
        operation = self.problem.operation
        named = dict(zip((t.name for t in operation.inputs), self.input_arrays, strict=True))
        fresh = zip((t.name for t in operation.fresh_outputs), self.fresh, strict=True)
        named |= {name: each.array for name, each in fresh}
        return tuple(named[tensor.name] for tensor in operation.outputs)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(each.array.nbytes for each in (*self.inputs, *self.fresh))

    def reset(self) -> None:
        """Poison the outputs and restore the inputs that the operation updates."""
        for each in self.fresh:
            poison(each.array)
        for position, original in self._pristine.items():
            self.inputs[position].array[...] = original

    def written(self) -> str | None:
        """What has been written to since `reset`, as a name; None when nothing was."""
        operation = self.problem.operation
        for tensor, each in zip(operation.fresh_outputs, self.fresh, strict=True):
            if not is_poison(each.array):
                return tensor.name
        for position, original in self._pristine.items():
            if not same_bits(self.inputs[position].array, original):
                return operation.inputs[position].name
        return None

    def damage(self) -> str | None:
        """What a candidate changed that it must not have, as a clause; or None."""
        operation = self.problem.operation
        names = (*operation.inputs, *operation.fresh_outputs)
        for tensor, each in zip(names, (*self.inputs, *self.fresh), strict=True):
            if not each.intact():
                return f"wrote outside of {tensor.name}"
        for position, unchanged in self._unchanged.items():
            if not unchanged():
                return f"changed its input {operation.inputs[position].name}"
        return None


def make_buffers(
    problem: Problem, seed: int = 0, *, gain: float = 1.0, memory: Memory = HOST
) -> Buffers:
    """Buffers with standard-normal inputs times `gain` (or `sample`'s), outputs poisoned.

    The same seed gives the same values, whatever the device and the number of CPUs.
    `sample(problem, rng)` returns the inputs in declared order, in any floating dtype; what it
    computes from the numbers of `rng` is computed on the device; the normal ones have that `gain`.
    Integer inputs are uniform in -8 ... 8. Memory: the inputs, the outputs, and a copy of each
    input that is updated in place (on a GPU, of every input).
    """
    operation = problem.operation
    inputs = tuple(_guarded(problem, tensor, problem.layout, memory) for tensor in operation.inputs)
    seeds = np.random.SeedSequence(seed).spawn(len(inputs) + 1)
    if operation.sample is not None:
        rng = np.random.default_rng(seeds[-1])
        _fill_from_sample(problem, inputs, memory, rng if gain == 1.0 else _Louder(rng, gain))
    else:
        for each, sequence in zip(inputs, seeds[:-1], strict=True):
            _fill(each.array, sequence, memory)
            if gain != 1.0 and is_floating(each.array.dtype):
                each.array[...] = each.array.astype(np.float64) * gain
    updated = operation.updated
    fresh = "unaligned" if problem.layout == "unaligned" else "packed"
    positions = {t.name: position for position, t in enumerate(operation.inputs)}
    buffers = Buffers(
        problem=problem,
        seed=seed,
        gain=gain,
        inputs=inputs,
        fresh=tuple(_guarded(problem, each, fresh, memory) for each in operation.fresh_outputs),
        scalars=problem.scalars(),
        memory=memory,
        _pristine={positions[name]: inputs[positions[name]].array.copy() for name in updated},
        _unchanged={
            position: memory.witness(inputs[position].array)
            for name, position in positions.items()
            if name not in updated
        },
    )
    buffers.reset()
    return buffers


def _guarded(problem: Problem, tensor: Tensor, layout: str, memory: Memory) -> Guarded:
    shape, dtype = tensor.shape(problem.sizes), array_dtype(problem.element_type(tensor.dtype))
    return Guarded.empty(shape, dtype, layout=layout, allocate=memory.allocate)


def _fill_from_sample(
    problem: Problem, inputs: tuple[Guarded, ...], memory: Memory, rng: Any
) -> None:
    operation = problem.operation
    assert operation.sample is not None
    given = operation.sample(problem, memory.random(rng))
    given = given if isinstance(given, tuple | list) else (given,)
    if len(given) != len(inputs):
        raise DeclarationError(
            f"operation {operation.name}: sample gave {len(given)} arrays for {len(inputs)} inputs."
        )
    for tensor, each, values in zip(operation.inputs, inputs, given, strict=True):
        if np.shape(values) != each.array.shape:
            raise DeclarationError(
                f"operation {operation.name}: sample gave {tensor} the shape {np.shape(values)}, "
                f"expected {each.array.shape}."
            )
        each.array[...] = memory.asarray(values)


class _Louder:
    """A generator whose normal numbers are multiplied, so that what follows from them fits."""

    def __init__(self, rng: np.random.Generator, gain: float) -> None:
        self._rng, self._gain = rng, gain

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self._rng, name)
        if name not in ("standard_normal", "normal"):
            return draw
        return lambda *args, **kwargs: draw(*args, **kwargs) * self._gain


def _fill(array: Array, sequence: np.random.SeedSequence, memory: Memory) -> None:
    """Random values in chunks of fixed size, each with its own stream, by several threads."""
    in_place = memory is HOST and array.flags.c_contiguous
    flat = array.reshape(-1) if in_place else np.empty(array.size, array.dtype)
    starts = range(0, flat.size, _CHUNK)
    streams = sequence.spawn(len(starts))

    def fill_chunk(number: int) -> None:
        rng = np.random.Generator(np.random.SFC64(streams[number]))
        part = flat[starts[number] : starts[number] + _CHUNK]
        if part.dtype in (np.float32, np.float64):
            rng.standard_normal(dtype=part.dtype, out=part)
        elif np.issubdtype(part.dtype, np.integer):
            part[...] = rng.integers(*_INTEGERS, size=part.size).clip(np.iinfo(part.dtype).min)
        else:
            part[...] = rng.standard_normal(part.size, dtype=np.float32)

    with ThreadPoolExecutor(allowed_cpus()) as pool:
        list(pool.map(fill_chunk, range(len(starts))))
    if not in_place:
        array[...] = memory.asarray(flat).reshape(array.shape)

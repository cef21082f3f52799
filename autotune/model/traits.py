"""What a variant's declared passes imply: determinism, workspace, atomics, traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.model.expression import ceil_div, evaluate
from autotune.model.problem import Problem, dtype_itemsize
from autotune.model.variant import Pass, Variant, spread


@dataclass(frozen=True, slots=True)
class Prediction:
    """Counts read off a declaration before anything runs; bytes, additions, launches, flops."""

    bytes_read: int
    bytes_written: int
    atomics: int
    launches: int
    flops: int
    workspace_bytes: int

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


def is_deterministic(variant: Variant) -> bool:
    """Whether repeats must agree bitwise: true unless a pass accumulates atomically.

    A variant without declared passes is what its author states, and otherwise not deterministic.
    """
    if variant.deterministic is not None:
        return variant.deterministic
    kinds = {how for each in variant.passes for how in each.writes.values()}
    return bool(variant.passes) and "atomic" not in kinds


def values(problem: Problem, config: Mapping[str, Any]) -> dict[str, Any]:
    """Everything a variant's expressions may refer to for this candidate."""
    return {"threads": 1, **problem.names, **config}


def intermediate_shapes(
    variant: Variant, problem: Problem, config: Mapping[str, Any]
) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shape and dtype of every intermediate, in declared order."""
    names = values(problem, config)
    return tuple(
        (
            tuple(int(evaluate(size, names)) for size in array.dims),
            problem.element_type(array.dtype),
        )
        for array in variant.intermediates
    )


def workspace_bytes(variant: Variant, problem: Problem, config: Mapping[str, Any]) -> int:
    """Bytes of all intermediates that live in memory."""
    return sum(
        math.prod(shape) * dtype_itemsize(dtype)
        for shape, dtype in intermediate_shapes(variant, problem, config)
    )


def predict(variant: Variant, problem: Problem, config: Mapping[str, Any]) -> Prediction:
    """Derive the prediction of a candidate from its passes.

    Atomic additions: an array written atomically receives one addition per element from every
    worker of the pass that can reach the element, that is from each tile of each parallel axis
    that is not a dim of the array.
    """
    names = values(problem, config)
    elements = _array_elements(variant, problem, config)
    read, written, atomics, flops = 0, 0, 0, 0
    for each in variant.passes:
        flops += int(evaluate(each.flops, names))
        for array, times in spread(each.reads).items():
            count, size = elements[array]
            read += math.ceil(count * evaluate(times, names)) * size
        for array, how in each.writes.items():
            count, size = elements[array]
            written += count * size
            if how == "atomic":
                atomics += count * _sharers(each, _dims(variant, array), names)
    return Prediction(
        bytes_read=read,
        bytes_written=written,
        atomics=atomics,
        launches=sum(int(evaluate(each.launches, names)) for each in variant.passes),
        flops=flops or problem.flops,
        workspace_bytes=workspace_bytes(variant, problem, config),
    )


def _sharers(each: Pass, dims: tuple[str, ...], names: Mapping[str, Any]) -> int:
    """How many workers add into one element of an array over `dims`."""
    sharers = 1
    for axis, tile in spread(each.parallel).items():
        if axis not in dims:
            sharers *= ceil_div(names[axis], int(evaluate(tile, names)))
    return sharers


def _dims(variant: Variant, array: str) -> tuple[str, ...]:
    operation = variant.operation
    declared = {t.name: t.dims for t in (*operation.inputs, *operation.outputs)}
    declared |= {a.name: tuple(str(d) for d in a.dims) for a in variant.intermediates}
    return declared[array]


def _array_elements(
    variant: Variant, problem: Problem, config: Mapping[str, Any]
) -> dict[str, tuple[int, int]]:
    """Per array: number of elements and bytes of one."""
    operation = variant.operation
    counts = {
        t.name: (math.prod(t.shape(problem.sizes)), dtype_itemsize(problem.element_type(t.dtype)))
        for t in (*operation.inputs, *operation.outputs)
    }
    shapes = intermediate_shapes(variant, problem, config)
    for array, (shape, dtype) in zip(variant.intermediates, shapes, strict=True):
        counts[array.name] = (math.prod(shape), dtype_itemsize(dtype))
    return counts

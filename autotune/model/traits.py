"""What a variant's declared passes imply: determinism, workspace, atomics, traffic, parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autotune.errors import DeclarationError
from autotune.model.expression import ceil_div, number
from autotune.model.problem import Problem, dtype_itemsize
from autotune.model.variant import Axes, Pass, Variant, spread


@dataclass(frozen=True, slots=True)
class PassPrediction:
    """Counts of one pass.

    `workers` is the number of tiles of its parallel axes, and `steps` how many one worker takes one
    after the other; a pass without parallel or without sequential axes names no workers (None).
    `cache_bytes` are what all workers read, each what lies in its tiles: where they share a cache,
    it delivers so much while memory delivers `bytes_read`.
    """

    name: str
    elements_read: int
    elements_written: int
    bytes_read: int
    bytes_written: int
    cache_bytes: int
    atomics: int
    launches: int
    flops: int
    workers: int | None
    steps: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """Counts read off a declaration before anything runs; bytes, additions, launches, flops.

    Totals of `passes`, but for `flops`: where no pass declares any, the operation's own.
    """

    bytes_read: int
    bytes_written: int
    atomics: int
    launches: int
    flops: int
    workspace_bytes: int
    elements_read: int = 0
    elements_written: int = 0
    passes: tuple[PassPrediction, ...] = ()

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
            tuple(int(number(size, names)) for size in array.dims),
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


def fault(variant: Variant, problem: Problem, config: Mapping[str, Any]) -> str | None:
    """Why the passes and intermediates imply nothing for a candidate (a division by zero), or None.

    Where there is one, `predict` and `workspace_bytes` raise DeclarationError.
    """
    names = values(problem, config)
    try:
        for text in _sizes(variant):
            number(text, names)
    except DeclarationError as error:
        return str(error).removesuffix(".")
    return None


@lru_cache(maxsize=1024)
def _sizes(variant: Variant) -> tuple[str, ...]:
    """Every expression in the passes and intermediates that is more than a number or a dim."""
    sizes = [size for each in variant.passes for size in each.expressions]
    sizes += [size for array in variant.intermediates for size in array.dims]
    plain = variant.operation.dims
    return tuple(dict.fromkeys(str(s) for s in sizes if isinstance(s, str) and s not in plain))


def predict(variant: Variant, problem: Problem, config: Mapping[str, Any]) -> Prediction:
    """Derive the prediction of a candidate from its passes.

    Atomic additions: an array written atomically receives one addition per element from every
    worker of the pass that can reach the element, that is from each tile of each parallel axis
    that is not a dim of the array.
    """
    names = values(problem, config)
    arrays = _arrays(variant, problem, config)
    passes = tuple(_pass_prediction(each, arrays, names) for each in variant.passes)
    return Prediction(
        bytes_read=sum(each.bytes_read for each in passes),
        bytes_written=sum(each.bytes_written for each in passes),
        atomics=sum(each.atomics for each in passes),
        launches=sum(each.launches for each in passes),
        flops=sum(each.flops for each in passes) or problem.flops,
        workspace_bytes=workspace_bytes(variant, problem, config),
        elements_read=sum(each.elements_read for each in passes),
        elements_written=sum(each.elements_written for each in passes),
        passes=passes,
    )


@dataclass(frozen=True, slots=True)
class _Array:
    """An array of the candidate: its dims as declared, its elements, bytes of one."""

    dims: tuple[str, ...]
    elements: int
    itemsize: int


def _pass_prediction(
    each: Pass, arrays: Mapping[str, _Array], names: Mapping[str, Any]
) -> PassPrediction:
    tiles, sequential = _tiles(each.parallel, names), _tiles(each.sequential, names)
    workers = None
    if tiles and sequential:
        workers = math.prod(ceil_div(names[axis], tile) for axis, tile in tiles.items())
    read, bytes_read, cache_bytes = 0, 0, 0
    for name, times in spread(each.reads).items():
        array, sweeps = arrays[name], number(times, names)
        count = math.ceil(array.elements * sweeps)
        read += count
        bytes_read += count * array.itemsize
        cache_bytes += math.ceil(_reached(array, tiles, workers, names) * sweeps) * array.itemsize
    written = [arrays[name] for name in each.writes]
    return PassPrediction(
        name=each.name,
        elements_read=read,
        elements_written=sum(array.elements for array in written),
        bytes_read=bytes_read,
        bytes_written=sum(array.elements * array.itemsize for array in written),
        cache_bytes=cache_bytes,
        atomics=sum(
            array.elements * _sharers(array, tiles, names)
            for array, how in zip(written, each.writes.values(), strict=True)
            if how == "atomic"
        ),
        launches=int(number(each.launches, names)),
        flops=int(number(each.flops, names)),
        workers=workers,
        steps=math.prod(
            ceil_div(min(names[axis], tiles.get(axis, names[axis])), tile)
            for axis, tile in sequential.items()
        ),
    )


def _tiles(axes: Axes, names: Mapping[str, Any]) -> dict[str, int]:
    """The tile of each axis; at least 1, also where the axis is empty."""
    return {axis: max(int(number(tile, names)), 1) for axis, tile in spread(axes).items()}


def _sharers(array: _Array, tiles: Mapping[str, int], names: Mapping[str, Any]) -> int:
    """How many workers add into one element of an array."""
    return math.prod(
        ceil_div(names[axis], tile) for axis, tile in tiles.items() if axis not in array.dims
    )


def _reached(
    array: _Array, tiles: Mapping[str, int], workers: int | None, names: Mapping[str, Any]
) -> int:
    """Elements of an array that all workers read together, each of them within its tiles.

    An array that is laid out otherwise than by dims is taken to be read once.
    """
    if workers is None or not all(dim in names for dim in array.dims):
        return array.elements
    own = math.prod(min(tiles.get(dim, names[dim]), names[dim]) for dim in array.dims)
    return workers * own


def _arrays(variant: Variant, problem: Problem, config: Mapping[str, Any]) -> dict[str, _Array]:
    """Every array that a pass may name."""
    operation = variant.operation
    found = {
        t.name: _Array(
            t.dims,
            math.prod(t.shape(problem.sizes)),
            dtype_itemsize(problem.element_type(t.dtype)),
        )
        for t in (*operation.inputs, *operation.outputs)
    }
    shapes = intermediate_shapes(variant, problem, config)
    for array, (shape, dtype) in zip(variant.intermediates, shapes, strict=True):
        dims = tuple(str(dim) for dim in array.dims)
        found[array.name] = _Array(dims, math.prod(shape), dtype_itemsize(dtype))
    return found

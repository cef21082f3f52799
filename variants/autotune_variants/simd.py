"""Vectors of 64 bytes as values in numba code: load, store, splat, sums, maxima.

LLVM splits them into the registers that the CPU has. They stay in registers where its own
vectoriser would go through memory: accumulators of a tile, several rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import models, register_model
from numba.extending import intrinsic

BYTES = 64

_declare: Any = cgutils.get_or_insert_function


class Vector(types.Type):
    """As many elements of `dtype` as fit in 64 bytes."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.lanes = BYTES * 8 // dtype.bitwidth
        initialise: Any = super().__init__
        initialise(name=f"vector({dtype} x {self.lanes})")


def _element(dtype: Any) -> Any:
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        initialise: Any = super().__init__
        initialise(dmm, fe_type, ir.VectorType(_element(fe_type.dtype), fe_type.lanes))


Generate = Callable[[Any, Any, Any, Any], Any]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


def _load(typing_context: Any, row: Any, index: Any) -> tuple[Any, Generate]:
    vector = Vector(row.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, row, *arguments)
        kind = context.get_value_type(vector)
        return builder.load(
            builder.bitcast(pointer, kind.as_pointer()), align=row.dtype.bitwidth // 8
        )

    return vector(row, types.intp), generate


def _store(typing_context: Any, row: Any, index: Any, value: Any) -> tuple[Any, Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, where, what = arguments
        pointer = _pointer(context, builder, row, array, where)
        target = builder.bitcast(pointer, what.type.as_pointer())
        builder.store(what, target, align=row.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(row, types.intp, value), generate


def _prefetch(typing_context: Any, row: Any, index: Any) -> tuple[Any, Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(32)
        element = _pointer(context, builder, row, *arguments)
        byte = builder.bitcast(element, ir.IntType(8).as_pointer())
        shape = ir.FunctionType(ir.VoidType(), [byte.type, integer, integer, integer])
        function = _declare(builder.module, shape, "llvm.prefetch.p0")
        builder.call(function, [byte, integer(0), integer(3), integer(1)])
        return context.get_dummy_value()

    return types.void(row, types.intp), generate


def _splat(typing_context: Any, scalar: Any) -> tuple[Any, Generate]:
    vector = Vector(scalar)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = context.get_value_type(vector)
        first = builder.insert_element(ir.Constant(kind, ir.Undefined), arguments[0], _index(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.lanes), [0] * vector.lanes)
        return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), mask)

    return vector(scalar), generate


def _index(value: int) -> Any:
    return ir.Constant(ir.IntType(32), value)


def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> tuple[Any, Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        shape = ir.FunctionType(kind, [kind] * 3)
        name = f"llvm.fmuladd.v{a.lanes}f{a.dtype.bitwidth}"
        function = _declare(builder.module, shape, name)
        return builder.call(function, arguments)

    return a(a, b, c), generate


def _total(typing_context: Any, vector: Any) -> tuple[Any, Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (value,) = arguments
        element = value.type.element
        shape = ir.FunctionType(element, [element, value.type])
        name = f"llvm.vector.reduce.fadd.v{vector.lanes}f{vector.dtype.bitwidth}"
        function = _declare(builder.module, shape, name)
        return builder.call(function, [ir.Constant(element, -0.0), value], fastmath=("reassoc",))

    return vector.dtype(vector), generate


def _add(typing_context: Any, a: Any, b: Any) -> tuple[Any, Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return a(a, b), generate


def _maximum(typing_context: Any, a: Any, b: Any) -> tuple[Any, Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, other = arguments
        return builder.select(builder.fcmp_ordered(">", one, other), one, other)

    return a(a, b), generate


def _highest(typing_context: Any, vector: Any) -> tuple[Any, Generate]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (value,) = arguments
        shape = ir.FunctionType(value.type.element, [value.type])
        name = f"llvm.vector.reduce.fmax.v{vector.lanes}f{vector.dtype.bitwidth}"
        function = _declare(builder.module, shape, name)
        return builder.call(function, [value])

    return vector.dtype(vector), generate


def _transpose(
    typing_context: Any, source: Any, step: Any, target: Any, row: Any, column: Any
) -> tuple[Any, Generate]:
    vector, size = Vector(target.dtype), target.dtype.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, distance, array, i, j = arguments
        kind = context.get_value_type(vector).as_pointer()
        shape = context.make_array(target)(context, builder, array).shape
        width = builder.extract_value(shape, 1)
        lines = []
        for _ in range(vector.lanes):
            lines.append(builder.load(builder.inttoptr(address, kind), align=size))
            address = builder.add(address, distance)
        element = builder.add(builder.mul(i, width), j)
        for line in _transposed(builder, lines):
            pointer = _pointer(context, builder, target, array, element)
            builder.store(line, builder.bitcast(pointer, kind), align=size)
            element = builder.add(element, width)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, target, types.intp, types.intp), generate


def _transposed(builder: Any, lines: list[Any]) -> list[Any]:
    """The transpose of a square, by swapping corners: first of 2 x 2 squares, then of 4 x 4, ..."""
    lanes, half = len(lines), 1
    mask = ir.VectorType(ir.IntType(32), lanes)
    while half < lanes:
        upper = [j - half + lanes if j & half else j for j in range(lanes)]
        lower = [j + lanes if j & half else j + half for j in range(lanes)]
        for i in (i for i in range(lanes) if not i & half):
            pair = lines[i], lines[i + half]
            lines[i] = builder.shuffle_vector(*pair, ir.Constant(mask, upper))
            lines[i + half] = builder.shuffle_vector(*pair, ir.Constant(mask, lower))
        half *= 2
    return lines


load: Any = intrinsic(_load)
"""load(row, index): 64 bytes of a row from element `index` on; the row's stride is one element."""

store: Any = intrinsic(_store)
"""store(row, index, vector): the opposite."""

prefetch: Any = intrinsic(_prefetch)
"""prefetch(row, index): ask for the cache line of an element; one past the end does no harm."""

splat: Any = intrinsic(_splat)
"""splat(x): a vector with x in every lane."""

fma: Any = intrinsic(_fma)
"""fma(a, b, c): a * b + c, rounded once where the CPU can."""

add: Any = intrinsic(_add)
"""add(a, b): a + b, lane by lane."""

total: Any = intrinsic(_total)
"""total(vector): the sum of its lanes."""

maximum: Any = intrinsic(_maximum)
"""maximum(a, b): lane by lane; where either is NaN, b."""

highest: Any = intrinsic(_highest)
"""highest(vector): the largest of its lanes, NaN aside."""

transpose: Any = intrinsic(_transpose)
"""transpose(address, step, target, i, j): a square, of as many rows as a vector has lanes.

Element x of the row at `address` + y * `step` bytes goes to target[i + x, j + y]; target is
C-contiguous.
"""

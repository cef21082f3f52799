"""Steps of the tiled kernels: compiled apart, run in parallel, given their arrays as a table.

A step is a numba function `step(worker, table)`. The parallel region calls steps by address, so
that it is compiled once for all of them, and forward and backward once for all operations that
are made of them. The table names the arrays: a row of whole numbers for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, prange
from numba import types as numba_types
from numba.core import cgutils as numba_cgutils

from autotune_variants.fastmath import INNER
from autotune_variants.gemm import compiled_address

types: Any = numba_types
cgutils: Any = numba_cgutils
intrinsic: Any = extending.intrinsic

STEP: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

# Rows of the table. A row holds an address, four sizes and four strides in bytes; row 0 the
# settings: address of gemm, block_q, block_k, workers, causal, and the scale as bits.
SETTINGS, Q, K, V, OUT, LSE, GRAD_OUT, GRAD_Q, GRAD_K, GRAD_V, DELTA = range(11)
QUERY_PARTS, KEY_PARTS, VALUE_PARTS, SCRATCH = range(11, 15)
_WIDTH = 9
_word = ir.IntType(64)


@intrinsic
def _call_step(typing_context: Any, step: Any, worker: Any, table: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, worker_value, table_value = arguments
        kind = ir.FunctionType(ir.VoidType(), [_word, cgutils.voidptr_t])
        place = builder.inttoptr(table_value, cgutils.voidptr_t)
        builder.call(builder.inttoptr(address, kind.as_pointer()), [worker_value, place])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@njit(parallel=True, nogil=True)
def run_steps(steps: Any, workers: int, table: Any) -> None:
    """Every step in order, by all workers at once; `steps` holds addresses."""
    place = np.intp(table.ctypes.data)
    for step in steps:
        for worker in prange(workers):
            _call_step(step, np.int64(worker), place)


def step_address(step: Any, dtype: str) -> int:
    """Address of a step compiled for "float32" or "float64"."""
    return compiled_address(step, (types.int64, types.CPointer(getattr(types, dtype))))


def empty_table() -> np.ndarray[Any, np.dtype[np.int64]]:
    """A table with no settings and no arrays."""
    return np.zeros((SCRATCH + 1, _WIDTH), np.int64)


@njit(nogil=True)
def describe(table: Any, row: Any, array: Any) -> Any:
    """Enter an array of up to four dims in a row of the table."""
    table[row, 0] = np.intp(array.ctypes.data)
    for axis in range(array.ndim):
        table[row, 1 + axis] = array.shape[axis]
        table[row, 5 + axis] = array.strides[axis]
    for axis in range(array.ndim, 4):
        table[row, 1 + axis] = 1
        table[row, 5 + axis] = 0


@intrinsic
def entry(typing_context: Any, table: Any, row: Any, column: Any) -> Any:
    """A whole number of the table."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(builder, *arguments))

    return types.int64(table, types.int64, types.int64), generate


@intrinsic
def number(typing_context: Any, table: Any, row: Any, column: Any) -> Any:
    """A float64 of the table."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.load(_place(builder, *arguments)), ir.DoubleType())

    return types.float64(table, types.int64, types.int64), generate


@intrinsic
def strided(typing_context: Any, table: Any, row: Any) -> Any:
    """The array of four dims, any strides, that a row describes; its dtype is the table's."""
    kind = types.Array(table.dtype, 4, "A")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, index = arguments
        words = [builder.load(_place(builder, pointer, index, _word(i))) for i in range(_WIDTH)]
        return _array(context, builder, kind, (words[0], words[1:5], words[5:9]))

    return kind(table, types.int64), generate


@intrinsic
def contiguous(typing_context: Any, table: Any, address: Any, height: Any, width: Any) -> Any:
    """The C-contiguous matrix at an address; its dtype is the table's."""
    kind = types.Array(table.dtype, 2, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, place, rows, columns = arguments
        size = _word(table.dtype.bitwidth // 8)
        steps = [builder.mul(columns, size), size]
        return _array(context, builder, kind, (place, [rows, columns], steps))

    return kind(table, types.int64, types.int64, types.int64), generate


@intrinsic
def number_size(typing_context: Any, table: Any) -> Any:
    """Bytes of an element of the arrays that the table describes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _word(table.dtype.bitwidth // 8)

    return types.int64(table), generate


@njit(**INNER)
def settings(table: Any) -> Any:
    """Address of gemm, block_q, block_k, workers, causal."""
    gemm, causal = entry(table, SETTINGS, 0), entry(table, SETTINGS, 4) != 0
    blocks = entry(table, SETTINGS, 1), entry(table, SETTINGS, 2)
    return gemm, blocks[0], blocks[1], entry(table, SETTINGS, 3), causal


@njit(**INNER)
def own_scratch(table: Any, w: Any) -> Any:
    """Address of the scratch memory of worker `w`."""
    return entry(table, SCRATCH, 0) + w * entry(table, SCRATCH, 5)


def _place(builder: Any, table: Any, row: Any, column: Any) -> Any:
    words = builder.bitcast(table, _word.as_pointer())
    return builder.gep(words, [builder.add(builder.mul(row, _word(_WIDTH)), column)])


def _array(context: Any, builder: Any, kind: Any, parts: tuple[Any, Any, Any]) -> Any:
    """An array structure without ownership of its memory."""
    address, shape, strides = parts
    array = context.make_array(kind)(context, builder)
    data_type = context.get_data_type(kind.dtype)
    context.populate_array(
        array,
        data=builder.inttoptr(address, data_type.as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=_word(kind.dtype.bitwidth // 8),
        meminfo=None,
    )
    return array._getvalue()

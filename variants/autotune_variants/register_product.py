"""Matrix products in vector registers: for tiles so small that packing them would not pay."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import extending, njit, types

from autotune_variants.fastmath import INNER

intrinsic: Any = extending.intrinsic
_PLAIN = np.int8(ord("N"))
_word, _index = ir.IntType(64), ir.IntType(32)


def _registers() -> tuple[int, int]:
    """Bytes of this CPU's widest vector registers, and how many there are."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 32
    if features.get("avx"):
        return 32, 16
    return 16, 32 if platform.machine() in ("aarch64", "arm64") else 16


# A block of c that stays in registers: 6 rows of 4 vectors take 24 of 32 registers, 6 of 2 take
# 12 of 16; the rest hold a row of b and an element of a. On a Xeon with AVX-512 it reaches 96% of
# what its multiply-add units can do, for operands in the caches.
REGISTER, COUNT = _registers()
ROWS, VECTORS = 6, COUNT // 8


class _Emitter:
    """Writes the instructions of one block; operands are addresses and distances in bytes."""

    def __init__(self, builder: Any, number: Any, lanes: Any) -> None:
        self.builder, self.number = builder, number
        self.size = 8 if isinstance(number, ir.DoubleType) else 4
        self.length = REGISTER // self.size
        self.vector = ir.VectorType(number, self.length)
        self.suffix = f"v{self.length}f{8 * self.size}"
        self.mask = None if lanes is None else self._mask(lanes)

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        """An LLVM intrinsic, declared once per module."""
        module = self.builder.module
        known = module.globals.get(name)
        return known or ir.Function(module, ir.FunctionType(result, arguments), name)

    def splat(self, value: Any) -> Any:
        """A vector with `value` in every lane."""
        empty = ir.Constant(ir.VectorType(value.type, self.length), ir.Undefined)
        lanes = ir.Constant(ir.VectorType(_index, self.length), [0] * self.length)
        first = self.builder.insert_element(empty, value, _index(0))
        return self.builder.shuffle_vector(first, empty, lanes)

    def _mask(self, lanes: Any) -> Any:
        kind = ir.VectorType(_index, self.length)
        numbers = ir.Constant(kind, list(range(self.length)))
        count = self.splat(self.builder.trunc(lanes, _index))
        return self.builder.icmp_signed("<", numbers, count)

    def at(self, address: Any, kind: Any) -> Any:
        """The address as a pointer."""
        return self.builder.inttoptr(address, kind.as_pointer())

    def number_at(self, address: Any) -> Any:
        """The element at an address, in every lane."""
        return self.splat(self.builder.load(self.at(address, self.number), align=self.size))

    def load(self, address: Any) -> Any:
        """The vector at an address; masked lanes are 0 and not read."""
        pointer = self.at(address, self.vector)
        if self.mask is None:
            return self.builder.load(pointer, align=self.size)
        name = f"llvm.masked.load.{self.suffix}.p0"
        kinds = (pointer.type, _index, self.mask.type, self.vector)
        load = self.function(name, self.vector, *kinds)
        zero = ir.Constant(self.vector, [0.0] * self.length)
        return self.builder.call(load, [pointer, _index(self.size), self.mask, zero])

    def store(self, value: Any, address: Any) -> None:
        """Write a vector; masked lanes stay as they are."""
        pointer = self.at(address, self.vector)
        if self.mask is None:
            self.builder.store(value, pointer, align=self.size)
            return
        name = f"llvm.masked.store.{self.suffix}.p0"
        kinds = (self.vector, pointer.type, _index, self.mask.type)
        store = self.function(name, ir.VoidType(), *kinds)
        self.builder.call(store, [value, pointer, _index(self.size), self.mask])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once where the CPU can."""
        fma = self.function(f"llvm.fmuladd.{self.suffix}", self.vector, *[self.vector] * 3)
        return self.builder.call(fma, [a, b, c])


def _block(rows: int, vectors: int, *, cut: bool = False) -> Any:
    """c = alpha a b, or c += alpha a b, for a block of `rows` x `vectors` in registers.

    Sums over k elements; a is (address, bytes between rows, bytes between columns), b and c are
    (address, bytes between rows). With `cut` only the first `lanes` lanes exist.
    """

    @intrinsic
    def block(
        typing_context: Any, k: Any, alpha: Any, a: Any, b: Any, add: Any, c: Any, lanes: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            count, factor, a, b, add, c, lanes = arguments
            emit = _Emitter(builder, factor.type, lanes if cut else None)
            left, right, result = (
                [builder.extract_value(each, i) for i in range(len(each.type.elements))]
                for each in (a, b, c)
            )
            sums = _sum(emit, count, left, right, (rows, vectors))
            scale = emit.splat(factor)
            with builder.if_else(builder.icmp_signed("!=", add, _word(0))) as (then, otherwise):
                with then:
                    _write(emit, sums, scale, result, add=True)
                with otherwise:
                    _write(emit, sums, scale, result, add=False)
            return context.get_dummy_value()

        return types.void(k, alpha, a, b, add, c, lanes), generate

    return block


def _sum(emit: _Emitter, count: Any, left: Any, right: Any, shape: tuple[int, int]) -> Any:
    """The block's sums over k, in a loop that keeps them in registers."""
    builder, (rows, vectors) = emit.builder, shape
    zero = ir.Constant(emit.vector, [0.0] * emit.length)
    before = builder.block
    loop, after = builder.append_basic_block("k"), builder.append_basic_block("sums")
    builder.cbranch(builder.icmp_signed(">", count, _word(0)), loop, after)

    def carried(start: Any) -> Any:
        value = builder.phi(start.type)
        value.add_incoming(start, before)
        return value

    builder.position_at_end(loop)
    left_to_do, a, b = carried(count), carried(left[0]), carried(right[0])
    sums = [[carried(zero) for _ in range(vectors)] for _ in range(rows)]
    loaded = [emit.load(builder.add(b, _word(v * REGISTER))) for v in range(vectors)]
    news = []
    for r, row in enumerate(sums):
        element = emit.number_at(builder.add(a, builder.mul(left[1], _word(r))))
        news.append([emit.multiply_add(element, loaded[v], row[v]) for v in range(vectors)])
    remaining = builder.sub(left_to_do, _word(1))
    left_to_do.add_incoming(remaining, loop)
    a.add_incoming(builder.add(a, left[2]), loop)
    b.add_incoming(builder.add(b, right[1]), loop)
    builder.cbranch(builder.icmp_signed(">", remaining, _word(0)), loop, after)
    builder.position_at_end(after)
    finals = []
    for row, new_row in zip(sums, news, strict=True):
        finals.append([carried(zero) for _ in row])
        for old, new, final in zip(row, new_row, finals[-1], strict=True):
            old.add_incoming(new, loop)
            final.add_incoming(new, loop)
    return finals


def _write(emit: _Emitter, sums: Any, scale: Any, result: Any, *, add: bool) -> None:
    """c = scale * sums, or c += scale * sums."""
    builder = emit.builder
    for r, row in enumerate(sums):
        start = builder.add(result[0], builder.mul(result[1], _word(r)))
        for v, value in enumerate(row):
            address = builder.add(start, _word(v * REGISTER))
            if add:
                emit.store(emit.multiply_add(scale, value, emit.load(address)), address)
            else:
                emit.store(builder.fmul(scale, value), address)


_wide, _half, _cut = _block(ROWS, VECTORS), _block(ROWS, VECTORS // 2), _block(ROWS, 1, cut=True)
_wide_2, _half_2, _cut_2 = _block(2, VECTORS), _block(2, VECTORS // 2), _block(2, 1, cut=True)
_wide_1, _half_1, _cut_1 = _block(1, VECTORS), _block(1, VECTORS // 2), _block(1, 1, cut=True)


@intrinsic
def _value(typing_context: Any, pointer: Any) -> Any:
    """What a pointer points to."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(arguments[0])

    return pointer.dtype(pointer), generate


@intrinsic
def _size(typing_context: Any, number: Any) -> Any:
    """Bytes of a float32 or float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _word(number.bitwidth // 8)

    return types.int64(number), generate


@njit(**INNER)
def _product(sizes: Any, alpha: Any, a: Any, b: Any, add: Any, c: Any) -> Any:
    """Row-major c[m,n] = alpha a[m,k] b[k,n], added to c unless `add` is 0.

    `sizes` is (m, n, k, bytes of an element); a is (address, bytes between rows, bytes between
    columns), b and c are (address, bytes between rows) and contiguous in a row.
    """
    m, n, k, size = sizes
    lanes = REGISTER // size
    wide, half = VECTORS * lanes, VECTORS // 2 * lanes
    j = 0
    while j < n:
        left = n - j
        taken = wide if left >= wide else half if left >= half else min(left, lanes)
        right = (b[0] + j * size, b[1])
        i = 0
        while i < m:
            rows = ROWS if m - i >= ROWS else 2 if m - i >= 2 else 1
            above = (a[0] + i * a[1], a[1], a[2])
            target = (c[0] + i * c[1] + j * size, c[1])
            if rows == ROWS:
                if taken == wide:
                    _wide(k, alpha, above, right, add, target, taken)
                elif taken == half:
                    _half(k, alpha, above, right, add, target, taken)
                else:
                    _cut(k, alpha, above, right, add, target, taken)
            elif rows == 2:
                if taken == wide:
                    _wide_2(k, alpha, above, right, add, target, taken)
                elif taken == half:
                    _half_2(k, alpha, above, right, add, target, taken)
                else:
                    _cut_2(k, alpha, above, right, add, target, taken)
            elif taken == wide:
                _wide_1(k, alpha, above, right, add, target, taken)
            elif taken == half:
                _half_1(k, alpha, above, right, add, target, taken)
            else:
                _cut_1(k, alpha, above, right, add, target, taken)
            i += rows
        j += taken


@njit(nogil=True, error_model="numpy")
def gemm(
    ta: Any,
    tb: Any,
    m: Any,
    n: Any,
    k: Any,
    alpha: Any,
    a: Any,
    lda: Any,
    b: Any,
    ldb: Any,
    beta: Any,
    c: Any,
    ldc: Any,
) -> None:
    """xGEMM with the Fortran interface of BLAS, for ta = "N" and beta 0 or 1.

    Column-major c[m,n] = alpha a[m,k] op(b) + beta c, where op(b) is b[k,n], or the transpose of
    b[n,k] for tb = "T". Numbers come by address, a, b and c as addresses.
    """
    factor = _value(alpha)
    size = _size(factor)
    row, column = _value(ldb) * size, size
    if _value(tb) != _PLAIN:
        row, column = column, row
    right, result = (a, _value(lda) * size), (c, _value(ldc) * size)
    shape = (_value(n), _value(m), _value(k), size)
    _product(shape, factor, (b, row, column), right, np.int64(_value(beta)), result)

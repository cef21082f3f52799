"""Matrix products in numba code, by any function with the interface of BLAS; without the GIL."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit
from numba import types as numba_types
from numba.core import cgutils as numba_cgutils

from autotune_variants.fastmath import INNER
from autotune_variants.register_product import gemm

cgutils: Any = numba_cgutils
types: Any = numba_types
intrinsic: Any = extending.intrinsic
_PLAIN, _TRANSPOSED = np.int8(ord("N")), np.int8(ord("T"))


@intrinsic
def _call_gemm(
    typing_context: Any, function: Any, transposes: Any, sizes: Any, scales: Any, arrays: Any
) -> Any:
    """Fortran xGEMM at an address.

    `transposes` (ta, tb) as int8 character codes, `sizes` (m, n, k, lda, ldb, ldc) as int64,
    `scales` (alpha, beta) in the dtype, `arrays` addresses (a, b, c).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, flags, integers, numbers, places = arguments

        def parts(value: Any) -> list[Any]:
            return cgutils.unpack_tuple(builder, value)

        def stored(value: Any) -> Any:
            slot = cgutils.alloca_once(builder, value.type)
            builder.store(value, slot)
            return builder.bitcast(slot, cgutils.voidptr_t)

        ta, tb = map(stored, parts(flags))
        m, n, k, lda, ldb, ldc = map(stored, parts(integers))
        alpha, beta = map(stored, parts(numbers))
        a, b, c = (builder.inttoptr(place, cgutils.voidptr_t) for place in parts(places))
        operands = [ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc]
        # Fortran compilers append the length of every character argument.
        word = ir.IntType(64)
        operands += [word(1), word(1)]
        kind = ir.FunctionType(ir.VoidType(), [each.type for each in operands])
        builder.call(builder.inttoptr(address, kind.as_pointer()), operands)
        return context.get_dummy_value()

    return types.void(function, transposes, sizes, scales, arrays), generate


@njit(**INNER)
def multiply(function: Any, sizes: Any, alpha: Any, a: Any, b: Any, beta: Any, c: Any) -> Any:
    """Row-major c[m,n] = alpha a[m,k] b[k,n] + beta c, by the gemm at address `function`.

    `sizes` is (m, n, k) as int64; a, b and c are (address, elements from row to row); alpha and
    beta have the dtype, beta is 0 or 1. Distances that BLAS would refuse belong to empty matrices.
    """
    m, n, k = sizes
    shape = (n, m, k, max(b[1], n, 1), max(a[1], k, 1), max(c[1], n, 1))
    _call_gemm(function, (_PLAIN, _PLAIN), shape, (alpha, beta), (b[0], a[0], c[0]))


@njit(**INNER)
def multiply_transposed(
    function: Any, sizes: Any, alpha: Any, a: Any, b: Any, beta: Any, c: Any
) -> Any:
    """Row-major c[m,n] = alpha a[k,m]^T b[k,n] + beta c; arguments as for `multiply`."""
    m, n, k = sizes
    shape = (n, m, k, max(b[1], n, 1), max(a[1], m, 1), max(c[1], n, 1))
    _call_gemm(function, (_PLAIN, _TRANSPOSED), shape, (alpha, beta), (b[0], a[0], c[0]))


def compiled_address(function: Any, arguments: tuple[Any, ...]) -> int:
    """Compile a numba function for argument types; the address at which C may call it."""
    function.compile(arguments)
    compiled = function.overloads[arguments]
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


def register_gemm(dtype: str) -> int:
    """Address of the gemm in vector registers for "float32" or "float64"."""
    number = getattr(types, dtype)
    flag, whole, scale = (types.CPointer(each) for each in (types.int8, types.int64, number))
    address = types.int64
    operands = (scale, address, whole, address, whole, scale, address, whole)
    return compiled_address(gemm, (flag, flag, whole, whole, whole, *operands))

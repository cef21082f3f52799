"""Exponentials that LLVM can vectorise: no branch, no table, no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types

intrinsic: Any = extending.intrinsic
overload: Any = extending.overload

# Options of functions that only numba code calls: no wrappers for Python and C to compile.
INNER: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}

# Polynomials for 2**r on [-1/2, 1/2], highest power first, with the constant term fixed at 1 so
# that powers of two are exact. Minimax in the relative error (Remez, 50 digits): 2.6e-9 at degree 6
# for float32, 1.8e-17 at degree 11 for float64.
_DEGREE_6 = (
    *(0.00015594678023735513, 0.0013406643929557058, 0.009617692973941796),
    *(0.055503105509466376, 0.24022652782877707, 0.6931472149680474, 1.0),
)
_DEGREE_11 = (
    *(4.078062699466225e-10, 7.072570442467681e-09, 1.0180647722118852e-07),
    *(1.3215442675182759e-06, 1.5252727385038238e-05, 0.0001540353044157236),
    *(0.0013333558153440133, 0.009618129107607003, 0.05550410866479039),
    *(0.24022650695910097, 0.6931471805599457, 1.0),
)
LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


@intrinsic
def _scale_by_power(typing_context: Any, value: Any, power: Any) -> Any:
    """`value * 2**n`, n being the low mantissa bits of `power`: an addition to the exponent."""
    bits, mantissa = (32, 23) if value == types.float32 else (64, 52)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integer = ir.IntType(bits)
        number, shift = (builder.bitcast(each, integer) for each in arguments)
        moved = builder.shl(shift, integer(mantissa))
        return builder.bitcast(builder.add(number, moved), arguments[0].type)

    return value(value, value), generate


def _horner(dtype: Any, *, powers: tuple[float, ...], lowest: float, mantissa: int) -> Any:
    coefficients = tuple(dtype(each) for each in powers)
    low, zero = dtype(lowest), dtype(0.0)
    round_to_whole = dtype(1.5 * 2.0**mantissa)

    @njit(fastmath={"contract", "nsz"}, **INNER)
    def exp2_of(x: Any) -> Any:
        inside = low if x < low else x
        shifted = inside + round_to_whole
        r = inside - (shifted - round_to_whole)
        value = coefficients[0]
        for each in coefficients[1:]:
            value = value * r + each
        return zero if x < low else _scale_by_power(value, shifted)

    return exp2_of


_exp2_32 = _horner(np.float32, powers=_DEGREE_6, lowest=-126.0, mantissa=23)
_exp2_64 = _horner(np.float64, powers=_DEGREE_11, lowest=-1022.0, mantissa=52)


def exp2(x: Any) -> Any:
    """2**x within 1.5 ulp for x below the overflow limit (128 in float32, 1024 in float64).

    Results below the smallest normal number become 0, so exp2(-inf) = 0; NaN stays NaN; above
    the overflow limit the result is undefined. Scalars of float32 or float64, in numba code only.
    """
    raise TypeError("exp2 is for numba code; use numpy.exp2 elsewhere")


@overload(exp2, strict=False)
def _exp2(x: Any) -> Callable[[Any], Any]:
    if x == types.float32:
        return lambda x: _exp2_32(x)
    return lambda x: _exp2_64(x)


@intrinsic
def full_width_vectors(typing_context: Any) -> Any:
    """Called in a function: LLVM vectorises its loops with the widest registers of the CPU.

    By default LLVM keeps to 256 bits on CPUs with AVX-512, for the sake of their clock.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        attributes = builder.function.attributes
        attributes.add("noinline")  # a caller that absorbed the loops would undo the setting
        set.add(attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate

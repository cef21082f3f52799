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

# Minimax polynomials in the relative error (Remez, 50 digits), highest power first, with the
# constant term fixed at 1: 2**r on [-1/2, 1/2] and e**r on [-ln(2)/2, ln(2)/2]. The errors are
# 2.6e-9 at degree 6, for float32, and 1.8e-17 at degree 11, for float64.
_EXP2_32 = (
    *(0.00015594678023735513, 0.0013406643929557058, 0.009617692973941796),
    *(0.055503105509466376, 0.24022652782877707, 0.6931472149680474, 1.0),
)
_EXP2_64 = (
    *(4.078062699466225e-10, 7.072570442467681e-09, 1.0180647722118852e-07),
    *(1.3215442675182759e-06, 1.5252727385038238e-05, 0.0001540353044157236),
    *(0.0013333558153440133, 0.009618129107607003, 0.05550410866479039),
    *(0.24022650695910097, 0.6931471805599457, 1.0),
)
_EXP_32 = (
    *(0.0014061277161274944, 0.008379020750301062, 0.04166477649879893),
    *(0.16666365314675938, 0.5000000434648576, 1.0000000496716646, 1.0),
)
_EXP_64 = (
    *(2.2981262981125148e-08, 2.7626310470352936e-07, 2.7564256494663774e-06),
    *(2.4801504477646372e-05, 0.00019841261487836697, 0.0013888888932367066),
    *(0.0083333333377182, 0.04166666666657356, 0.16666666666657295),
    *(0.5000000000000006, 1.0000000000000007, 1.0),
)
# ln(2) in two parts, the first with so few bits that its products with an exponent are exact
# (Cody and Waite, Software Manual for the Elementary Functions, 1980).
_LN2_32 = (0.693359375, -2.12194440054690583e-4)
_LN2_64 = (0.693145751953125, 1.42860682030941723212e-6)
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


def _exp2_of(dtype: Any, powers: tuple[float, ...]) -> Any:
    coefficients, zero = tuple(dtype(each) for each in powers), dtype(0)
    low = dtype(np.finfo(dtype).minexp)
    round_to_whole = dtype(1.5 * 2.0 ** np.finfo(dtype).nmant)

    @njit(fastmath={"contract", "nsz"}, **INNER)
    def exp2_of(x: Any) -> Any:
        shifted = x + round_to_whole
        r = x - (shifted - round_to_whole)
        value = coefficients[0]
        for each in coefficients[1:]:
            value = value * r + each
        return zero if x < low else _scale_by_power(value, shifted)

    return exp2_of


def _exp_of(dtype: Any, powers: tuple[float, ...], ln2: tuple[float, float]) -> Any:
    coefficients, zero = tuple(dtype(each) for each in powers), dtype(0)
    low = dtype(np.finfo(dtype).minexp * LN2)
    round_to_whole = dtype(1.5 * 2.0 ** np.finfo(dtype).nmant)
    log2_e, high, rest = dtype(LOG2E), dtype(ln2[0]), dtype(ln2[1])

    @njit(fastmath={"contract", "nsz"}, **INNER)
    def exp_of(x: Any) -> Any:
        shifted = x * log2_e + round_to_whole
        n = shifted - round_to_whole
        r = (x - n * high) - n * rest
        value = coefficients[0]
        for each in coefficients[1:]:
            value = value * r + each
        return zero if x < low else _scale_by_power(value, shifted)

    return exp_of


_exp2_32, _exp2_64 = _exp2_of(np.float32, _EXP2_32), _exp2_of(np.float64, _EXP2_64)
_exp_32, _exp_64 = _exp_of(np.float32, _EXP_32, _LN2_32), _exp_of(np.float64, _EXP_64, _LN2_64)


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


def exp(x: Any) -> Any:
    """e**x within 1.5 ulp for x below the overflow limit (88 in float32, 709 in float64).

    At the price of `exp2`; exp2(x * log2(e)) would lose what rounding the product loses. Small
    results, NaN and overflow as for `exp2`.
    """
    raise TypeError("exp is for numba code; use numpy.exp elsewhere")


@overload(exp, strict=False)
def _exp(x: Any) -> Callable[[Any], Any]:
    if x == types.float32:
        return lambda x: _exp_32(x)
    return lambda x: _exp_64(x)


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

/* e**x for x <= 0, in a form that compilers vectorise: no table, no call, no branch. */
#ifndef EXPONENTIAL_H
#define EXPONENTIAL_H

#include <math.h>
#include <stdint.h>

/* e**x for LOWEST <= x <= 0, or NaN. Minimax polynomials of e**r on [-ln(2)/2, ln(2)/2], and ln(2)
   in two parts, the first with so few bits that its products with an exponent are exact (Cody and
   Waite, Software Manual for the Elementary Functions, 1980); the same as in fastmath.py. At LOWEST
   the power of two has the exponent of 0, and so is 0. */
#define LOWEST ((REAL)(sizeof(REAL) == 4 ? -88.029691931113054 : -709.08956571282408))

static inline float exp_float(float x)
{
    const int32_t n = (int32_t)(x * 1.4426950408889634f - 0.5f);
    const float r = (x - (float)n * 0.693359375f) - (float)n * -2.12194440054690583e-4f;
    float e = 0.0014061277161274944f;
    e = e * r + 0.008379020750301062f;
    e = e * r + 0.04166477649879893f;
    e = e * r + 0.16666365314675938f;
    e = e * r + 0.5000000434648576f;
    e = e * r + 1.0000000496716646f;
    e = e * r + 1.0f;
    const union { int32_t bits; float value; } power = {(n + 127) << 23};
    return e * power.value;
}

static inline double exp_double(double x)
{
    const int32_t n = (int32_t)(x * 1.4426950408889634 - 0.5);
    const double r = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-6;
    double e = 2.2981262981125148e-08;
    e = e * r + 2.7626310470352936e-07;
    e = e * r + 2.7564256494663774e-06;
    e = e * r + 2.4801504477646372e-05;
    e = e * r + 0.00019841261487836697;
    e = e * r + 0.0013888888932367066;
    e = e * r + 0.0083333333377182;
    e = e * r + 0.04166666666657356;
    e = e * r + 0.16666666666657295;
    e = e * r + 0.5000000000000006;
    e = e * r + 1.0000000000000007;
    e = e * r + 1.0;
    const union { int64_t bits; double value; } power = {((int64_t)n + 1023) << 52};
    return e * power.value;
}

#define exp_of(x) _Generic((REAL)0, float: exp_float, double: exp_double)(x)

/* 0 for x = -inf and for most of what would be subnormal, NaN for NaN. */
static inline REAL exp_negative(REAL x)
{
    return exp_of(x < LOWEST ? LOWEST : x);
}

/* values[i] becomes e**(values[i] - shift), none of them above shift; returns their sum. Where a
   compiler sees comparison and polynomial in one loop, it branches, and does not vectorise. */
static inline REAL exponentials(REAL *values, int64_t count, REAL shift)
{
    REAL total = 0;
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
        values[i] = values[i] - shift < LOWEST ? LOWEST : values[i] - shift;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < count; i++) {
        values[i] = exp_of(values[i]);
        total += values[i];
    }
    return total;
}

#endif

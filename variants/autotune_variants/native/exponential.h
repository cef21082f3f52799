/* e**x for x <= 0, in a form that compilers vectorise: no branch, no table, no call. */
#ifndef EXPONENTIAL_H
#define EXPONENTIAL_H

#include <math.h>

/* Minimax polynomials of e**r on [-ln(2)/2, ln(2)/2], the lowest power first, and ln(2) in two
   parts, the first with so few bits that its products with an exponent are exact (Cody and Waite,
   Software Manual for the Elementary Functions, 1980). The same as in fastmath.py. */
static inline float exp_negative_float(float x)
{
    const float low = -87.336544750553102f;
    const float y = x < low ? low : x;
    const int32_t n = (int32_t)(y * 1.4426950408889634f - 0.5f);
    const float r = (y - (float)n * 0.693359375f) - (float)n * -2.12194440054690583e-4f;
    float e = 0.0014061277161274944f;
    e = e * r + 0.008379020750301062f;
    e = e * r + 0.04166477649879893f;
    e = e * r + 0.16666365314675938f;
    e = e * r + 0.5000000434648576f;
    e = e * r + 1.0000000496716646f;
    e = e * r + 1.0f;
    const union { int32_t bits; float value; } power = {(n + 127) << 23};
    return x < low ? 0.0f : e * power.value;
}

static inline double exp_negative_double(double x)
{
    const double low = -708.39641853226408;
    const double y = x < low ? low : x;
    const int32_t n = (int32_t)(y * 1.4426950408889634 - 0.5);
    const double r = (y - n * 0.693145751953125) - n * 1.42860682030941723212e-6;
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
    return x < low ? 0.0 : e * power.value;
}

/* 0 for x = -inf and for what would be subnormal, NaN for NaN. */
#define exp_negative(x) _Generic((REAL)0, float: exp_negative_float, double: exp_negative_double)(x)

#endif

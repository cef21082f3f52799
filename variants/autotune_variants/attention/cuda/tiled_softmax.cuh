// Exponentials with the score's scale and shift folded in.
#pragma once
#include "tiled_copies.cuh"

constexpr int kTableBits = 7, kTable = 1 << kTableBits, kTableBytes = kSize == 8 ? 8 * kTable : 0;
// 1.5 * 2^52 / kTable: adding it rounds to a multiple of 1 / kTable, kept as an integer in the low word.
constexpr double kRound = 6755399441055744.0 / kTable;

constexpr long long kRoundBits = 0x4338000000000000ll - (static_cast<long long>(kTableBits) << 52);  // of kRound
constexpr long long kLowest = kRoundBits - 1022 * kTable;  // of kRound - 1022, up to the exponent of the last place

__device__ __forceinline__ float infinity(float) { return __int_as_float(0x7f800000); }
__device__ __forceinline__ double infinity(double) { return __longlong_as_double(0x7ff0000000000000ll); }

// 2^(i / kTable) in shared memory, read by the float64 exponential.
__device__ __forceinline__ void fill_table(unsigned table) {
  if constexpr (kSize == 8) {
    for (int i = threadIdx.x; i < kTable; i += kThreads)
      asm volatile("st.shared.f64 [%0], %1;" ::"r"(table + 8 * i), "d"(exp2(i * (1.0 / kTable))) : "memory");
  }
}

// Comparisons of numbers near kRound as integers, off the float64 unit. Below 2^-1022; NaN of either sign is not.
__device__ __forceinline__ bool vanishes(double rounded) {
  return __double_as_longlong(rounded) < kLowest && static_cast<unsigned>(__double2hiint(rounded)) <= 0xfff00000u;
}

// x[i] = 2^(x[i] * c - m) for integers m with x[i] * c - m <= about 1000; below 2^-1022 the answer is 0, NaN stays.
// `rounded` holds fma(x, c, kRound - m): its low word has the exponent to insert above an index into the table. What is
// left, |r| <= 1 / 256, takes a polynomial of degree 4 (1 + r times Chebyshev interpolation; error 1.6e-16). The float64 unit shares its
// issue slot with the matrix unit, so every operation here counts; all values advance together, because one chain of
// dependent operations would leave the unit idle most of the time.
template <int Count>
__device__ __forceinline__ void exp2_many(double (&x)[Count], double c, const double (&bias)[Count], const double (&rounded)[Count],
                                          unsigned table) {
  double p[Count], power[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(power[i]) : "r"(table + (__double2loint(rounded[i]) & (kTable - 1)) * 8));
    x[i] = fma(x[i], c, bias[i] - rounded[i]);
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) p[i] = fma(0x1.3b2abc07bfd39p-7, x[i], 0x1.c6b0985c8a2e7p-5);
#pragma unroll
  for (int i = 0; i < Count; ++i) p[i] = fma(p[i], x[i], 0x1.ebfbdff82c4edp-3);
#pragma unroll
  for (int i = 0; i < Count; ++i) p[i] = fma(p[i], x[i], 0x1.62e42fefa3892p-1);
#pragma unroll
  for (int i = 0; i < Count; ++i) x[i] *= power[i];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    p[i] = fma(p[i], x[i], power[i]);
    const int exponent = __double2loint(rounded[i]) >> kTableBits << 20;
    const double value = __hiloint2double(__double2hiint(p[i]) + exponent, __double2loint(p[i]));
    x[i] = vanishes(rounded[i]) ? 0.0 : value;
  }
}

// Tiles of weights 2^(s * c - shift), with `bias(j, e)` = bias_of(shift) for element e of tile j.
template <int Tiles, typename Bias>
__device__ __forceinline__ void weigh(double (&s)[Tiles][4], double c, unsigned table, const Bias& bias) {
  constexpr int together = Tiles % 2 == 0 ? 8 : 4;
#pragma unroll
  for (int first = 0; first < 4 * Tiles; first += together) {
    double x[together], b[together], rounded[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const int j = (first + i) / 4, e = (first + i) % 4;
      x[i] = s[j][e], b[i] = bias(j, e), rounded[i] = fma(x[i], c, b[i]);
    }
    exp2_many(x, c, b, rounded, table);
#pragma unroll
    for (int i = 0; i < together; ++i) s[(first + i) / 4][(first + i) % 4] = x[i];
  }
}

template <int Tiles, typename Bias>
__device__ __forceinline__ void weigh(float (&s)[Tiles][4], float c, unsigned, const Bias& bias) {
#pragma unroll
  for (int j = 0; j < Tiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[j][e] = exp2_fast(fmaf(s[j][e], c, bias(j, e)));
  }
}

// The shift of a row whose largest score is s: an integer in float64, so that rescaling by it is exact.
// The floor keeps it finite for a row with nothing to attend yet.
constexpr Real kNoShift = kSize == 8 ? Real(-1125899906842624.0) : Real(-1e30);
__device__ __forceinline__ double shift_of(double s, double c) { return fmax(ceil(s * c), double(kNoShift)); }
__device__ __forceinline__ float shift_of(float s, float c) { return fmaxf(s * c, float(kNoShift)); }
// Weights may grow to 2^kSlack before the shift moves: rare, and harmless to the sums and products of either type.
constexpr int kSlack = kSize == 8 ? 64 : 8;
__device__ __forceinline__ bool outgrown(double s, double c, double bias) { return __double_as_longlong(fma(s, c, bias)) > kRoundBits + kSlack * kTable; }
__device__ __forceinline__ bool outgrown(float s, float c, float bias) { return !(fmaf(s, c, bias) <= kSlack); }
__device__ __forceinline__ double bias_of(double shift) { return kRound - shift; }
__device__ __forceinline__ float bias_of(float shift) { return -shift; }
// Whether a row may begin with no shift. Most may in float64: groups of warps then agree on it unasked, and the weights that
// they store are of one scale.
__device__ __forceinline__ bool needless(Real shift, Real before) { return kSize == 8 && before == kNoShift && fabs(shift) <= kSlack; }

__device__ __forceinline__ double exp2_of(double x) { return exp2(x); }
__device__ __forceinline__ float exp2_of(float x) { return exp2f(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }

// NaN in `a` loses, so that a NaN score reaches the sum instead of hiding in the maximum.
__device__ __forceinline__ Real larger(Real a, Real b) { return a > b ? a : b; }

template <typename R>
__device__ __forceinline__ R quad_max(R x) {
  x = larger(x, __shfl_xor_sync(~0u, x, 1));
  return larger(x, __shfl_xor_sync(~0u, x, 2));
}

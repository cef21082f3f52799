// Powers of two that bring tensors of any magnitude into float16's range, and results back. Every factor is a normal float32:
// where 2^e is none, there are two.
#pragma once

constexpr int kTop = 14;  // scaled magnitudes are below 2^kTop

// 2^e, or the nearest to it among normal numbers; and in float64, for |e| <= 1022.
__device__ __forceinline__ float power(int e) { return __uint_as_float(static_cast<unsigned>(min(max(e, -126), 127) + 127) << 23); }
__device__ __forceinline__ double two_to(int e) { return __hiloint2double((e + 1023) << 20, 0); }

// x * 2^e for -252 <= e <= 254.
__device__ __forceinline__ float scaled(float x, int e) { return x * power(e / 2) * power(e - e / 2); }

// The power that a head's largest finite magnitude calls for: between -114 and 162.
__device__ __forceinline__ int shift_for(float top) { return top > 0 ? kTop - 1 - ilogbf(top) : 0; }

// Scaled rows are below 2^(this). A squared norm may overflow or vanish; a row of 64 is below 2^(kTop + 3) in any case.
__device__ __forceinline__ int norm_for(float square, int shift) {
  return square > 1e-27f && square < 1e38f ? min((ilogbf(square) + 2) / 2 + shift, kTop + 3) : kTop + 3;
}

// A factor as a product of two normal numbers. The second is a power of two, and 1 for all but extreme magnitudes.
struct Factor {
  float near, rest;
};
__device__ __forceinline__ Factor factor_of(double x) {
  const int e = fabs(x) > 0 ? ilogb(x) : 0, rest = e > 126 ? min(e - 126, 127) : e < -126 ? max(e + 126, -126) : 0;
  return {static_cast<float>(x * two_to(-rest)), power(rest)};
}
template <int Count>
__device__ __forceinline__ void apply_rest(float (&x)[Count], const Factor& factor) {
  if (factor.rest == 1) return;
#pragma unroll
  for (int i = 0; i < Count; ++i) x[i] *= factor.rest;
}

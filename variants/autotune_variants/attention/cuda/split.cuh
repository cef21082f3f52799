// float32 attention on the 16-bit matrix units: every operand is a sum of two float16 numbers (22 bits), a product is
// three products, sums are float32. A power of two per head scales each tensor into the range of float16; below
// 2^-40 of a head's largest magnitude the split loses bits, so the error is relative to the head, not to the element.
#pragma once
#define HALF_FLOAT16 1
#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef KEY_STEP
#define KEY_STEP 128  // keys of a forward step
#endif
#ifndef VECTOR_GQ
#define VECTOR_GQ 1   // rows of gq are contiguous and 8-byte aligned
#endif
#include "powers.cuh"
#include "wgmma.cuh"

typedef unsigned short Half;

enum Source { kQ, kK, kV, kG, kSources };

// scratch: kSources times [2][B * heads of it][N of it][64], the larger halves first; q's have the sign of the scale.
// delta: of grad_out and out as scaled for the products, as large as that makes them.
// measures: [kSources][B * H][2][kParts], largest finite magnitude and largest squared row norm of a part of a head.
typedef Arguments<float, float, Half> Args;

constexpr int kThreads = 256, kDim = 64, kDepth = (HEAD_DIM + 15) / 16, kOwned = 128, kQueries = 64, kParts = 64;
static_assert(HEAD_DIM <= 64, "heads of up to 64");

__device__ __forceinline__ const Strides& strides_of(const Args& a, int source) {
  return source == kQ ? a.q : source == kK ? a.k : source == kV ? a.v : a.grad_out;
}
__device__ __forceinline__ const float* data_of(const Args& a, int source) {
  return source == kQ ? a.q_data : source == kK ? a.k_data : source == kV ? a.v_data : a.grad_out_data;
}
__device__ __forceinline__ i64 heads_of(const Args& a, int source) { return source == kK || source == kV ? a.kv_heads : a.heads; }
__device__ __forceinline__ i64 length_of(const Args& a, int source) { return source == kK || source == kV ? a.nk : a.nq; }
__device__ __forceinline__ i64 plane_of(const Args& a, int source) { return a.batch * heads_of(a, source) * length_of(a, source) * kDim; }

// The larger halves of a head's rows; the remainders lie plane_of(source) further.
__device__ __forceinline__ const Half* rows_of(const Args& a, int source, i64 batch, i64 head) {
  const Half* base = a.scratch;
  for (int s = 0; s < source; ++s) base += 2 * plane_of(a, s);
  return base + (batch * heads_of(a, source) + head) * length_of(a, source) * kDim;
}

// A head's scale is 2^shift, and its largest scaled row norm is below 2^norm.
struct Range {
  int shift, norm;
};

// The largest of the kParts measures of a head, in every lane of a warp.
__device__ __forceinline__ float largest(const float* part) {
  float top = 0;
  for (int i = threadIdx.x % 32; i < kParts; i += 32) top = fmaxf(top, part[i]);
  for (int offset = 16; offset; offset /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
  return top;
}

__device__ __forceinline__ const float* measures_of(const Args& a, int source, i64 batch, i64 head) {
  return a.measures + (source * a.batch * a.heads + batch * heads_of(a, source) + head) * 2 * kParts;
}

__device__ __forceinline__ int shift_of(const Args& a, int source, i64 batch, i64 head) {
  return shift_for(largest(measures_of(a, source, batch, head)));
}

__device__ __forceinline__ Range range_of(const Args& a, int source, i64 batch, i64 head) {
  const int shift = shift_of(a, source, batch, head);
  return {shift, norm_for(largest(measures_of(a, source, batch, head) + kParts), shift)};
}

// Rows [row, row + Rows) of both planes as two swizzled tiles; rows from `limit` on are zero.
template <int Rows>
__device__ __forceinline__ void load_tiles(unsigned tile, const Half* head, i64 plane, i64 row, i64 limit) {
  const int r = threadIdx.x / 8, c = threadIdx.x % 8;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
#pragma unroll
    for (int i = 0; i < Rows / 32; ++i) {
      const bool inside = row + r + i * 32 < limit;
      copy_async_16(tile + part * Rows * 128 + (r + i * 32) * 128 + ((c ^ (r % 8)) << 4),
                    head + part * plane + (inside ? row + r + i * 32 : 0) * kDim + c * 8, inside ? 16 : 0);
    }
  }
}

// From a product of scaled rows to the exponent of two. From 2^60 on one key has all the weight, and infinity would make NaN.
__device__ __forceinline__ float score_factor(const Args& a, int query_shift, int key_shift) {
  return static_cast<float>(fmin(fmax(exponent_factor(a.scale, 0.0) * two_to(-query_shift - key_shift), 1e-37), 0x1p60));
}

// Left operands of K products of depth 16, as larger halves and remainders.
template <int K>
struct Split {
  unsigned high[K][4], low[K][4];
  __device__ __forceinline__ void set(const float (&s)[8 * K]) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = s[8 * k + 2 * i], y = s[8 * k + 2 * i + 1];
        high[k][i] = pack(x, y);
        low[k][i] = pack(x - unpack(static_cast<unsigned short>(high[k][i])), y - unpack(static_cast<unsigned short>(high[k][i] >> 16)));
      }
    }
  }
};

// Small products first: the matrix units truncate a sum at each product, so the sum grows to its size only at the end.

// s = A B^T over the head dimension; the remainders' tiles lie RowsA and RowsB rows further. The queries' remainders come
// first, whichever side they are on, so that forward and backward round every score alike.
template <bool QueriesLeft, int Sums, int RowsA, int RowsB>
__device__ __forceinline__ void scores(float (&s)[Sums], unsigned a, unsigned b) {
  constexpr int left = QueriesLeft ? 0 : 1;
#pragma unroll
  for (int part = 0; part < 3; ++part) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k)
      product<false, false>(s, descriptor(a + (part == left ? RowsA * 128 : 0) + k * 32), descriptor(b + (part == 1 - left ? RowsB * 128 : 0) + k * 32),
                            part + k > 0);
  }
}

// sum = P B for P in registers and rows of a tile of RowsB rows.
template <int K, int RowsB, int Sums>
__device__ __forceinline__ void apply(float (&sum)[Sums], const Split<K>& p, unsigned b) {
#pragma unroll
  for (int part = 0; part < 3; ++part) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      product<true>(sum, part == 0 ? p.low[k] : p.high[k], descriptor(b + (part == 1 ? RowsB * 128 : 0) + k * 2048, RowsB * 128), part + k > 0);
  }
}

template <int Sums>
__device__ __forceinline__ void store_rows(const Strides& x, float* head, i64 row, i64 limit, const float (&sum)[Sums], int exponent) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= limit) continue;
#pragma unroll
    for (int j = 0; j < Sums / 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int d = 8 * j + 2 * (threadIdx.x % 4) + e;
        if (d < HEAD_DIM) head[(row + 8 * half) * x.n + d * x.d] = scaled(sum[4 * j + 2 * half + e], exponent);
      }
    }
  }
}

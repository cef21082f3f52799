// bfloat16 and float16 attention on warpgroup products: configuration, arguments, tiles.
#pragma once
#ifndef HALF_FLOAT16
#define HALF_FLOAT16 0
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef ALIGNED
#define ALIGNED 1        // rows contiguous and 16-byte aligned: asynchronous copies
#endif
#ifndef KEY_STEP
#define KEY_STEP 128     // keys of a forward step
#endif
#ifndef QUERY_STEP
#define QUERY_STEP 64    // queries of a backward step
#endif
#include "wgmma.cuh"

typedef unsigned short Half;

// scratch: sums of gq, [B, H, Nq, HEAD_DIM], zeroed by the forward of a training step or by `prepare`.
// measures, for float16: [2][B * H][kParts], the largest squared norm of rows of a part of a head of grad_out, and of v.
typedef Arguments<Half, float, float> Args;

constexpr int kThreads = 256;                     // two warpgroups
constexpr int kDim = HEAD_DIM <= 64 ? 64 : 128;   // padded head size
constexpr int kDepth = (HEAD_DIM + 15) / 16;      // products along the head
static_assert(HEAD_DIM <= 128, "heads of up to 128");
constexpr int kOwned = 128;                       // queries of a forward block, keys of a backward block
constexpr int kParts = 16;                        // of a head, measured apart

// Rows [row, row + Rows) of a head as a swizzled tile; rows from `limit` on and columns past HEAD_DIM are zero.
template <int Rows>
__device__ __forceinline__ void load_tile(unsigned tile, const Half* head, const Strides& x, i64 row, i64 limit) {
  constexpr int units = kDim / 8, rows = kThreads / units;
  const int r = threadIdx.x / units, c = threadIdx.x % units, left = (HEAD_DIM - c * 8) * 2;
  const Half* from = head + (row + r) * x.n + c * 8 * (ALIGNED ? 1 : x.d);
  unsigned to = tile + (c / 8) * Rows * 128 + r * 128 + (((c % 8) ^ (r % 8)) << 4);
#pragma unroll
  for (int i = 0; i < Rows / rows; ++i, from += rows * x.n, to += rows * 128) {
    const bool inside = row + r + i * rows < limit;
#if ALIGNED
    copy_async_16(to, from, !inside || left <= 0 ? 0 : left < 16 ? left : 16);
#else
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const Half value = inside && 2 * e < left ? from[e * x.d] : Half(0);
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + 2 * e), "h"(value) : "memory");
    }
#endif
  }
}

// Gives the rows a block owns the sign of the scale, so that larger scores always mean larger weights.
__device__ __forceinline__ void negate_owned(unsigned tile, double scale) {
  if (scale >= 0) return;
  wait_copies();
  __syncthreads();
  negate_tile<2, kThreads>(tile, kOwned * kDim * 2, scale);
}

// s = A B^T over the head dimension: 64 rows of one tile and N rows of another.
template <int Sums, int RowsA, int RowsB>
__device__ __forceinline__ void scores(float (&s)[Sums], unsigned a, unsigned b) {
#pragma unroll
  for (int k = 0; k < kDepth; ++k)
    product<false, false>(s, descriptor(a + k / 4 * RowsA * 128 + k % 4 * 32), descriptor(b + k / 4 * RowsB * 128 + k % 4 * 32), k > 0);
}

// result (+)= P B for P in registers (64 x 16 K) and rows of a tile of RowsB rows.
template <int K, int RowsB, int Sums>
__device__ __forceinline__ void accumulate(float (&result)[Sums], const unsigned (&p)[K][4], unsigned b) {
#pragma unroll
  for (int k = 0; k < K; ++k) product<true>(result, p[k], descriptor(b + k * 16 * 128, RowsB * 128), true);
}

// Sums of a product as the left operand of the next, 16 columns at a time.
template <int K>
__device__ __forceinline__ void as_left(unsigned (&p)[K][4], const float (&s)[8 * K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) p[k][i] = pack(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
  }
}

// Writes 64 rows (this lane's are `row` and row + 8) times a factor by half.
template <int Sums>
__device__ __forceinline__ void store_rows(const Strides& x, Half* head, i64 row, i64 limit, const float (&sum)[Sums], float top,
                                           float bottom) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= limit) continue;
    Half* to = head + (row + 8 * half) * x.n;
    const float factor = half ? bottom : top;
#pragma unroll
    for (int j = 0; j < Sums / 4; ++j) {
      const int d = 8 * j + 2 * t;
      const unsigned two = pack(sum[4 * j + 2 * half] * factor, sum[4 * j + 2 * half + 1] * factor);
      if (ALIGNED && d + 1 < HEAD_DIM) {
        *reinterpret_cast<unsigned*>(to + d) = two;
      } else {
        if (d < HEAD_DIM) to[d * x.d] = static_cast<Half>(two);
        if (d + 1 < HEAD_DIM) to[(d + 1) * x.d] = static_cast<Half>(two >> 16);
      }
    }
  }
}

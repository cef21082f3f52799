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
#ifndef KEY_STEP
#define KEY_STEP 128     // keys of a forward step
#endif
#ifndef QUERY_STEP
#define QUERY_STEP 64    // queries of a backward step
#endif
#include "wgmma.cuh"

typedef unsigned short Half;

struct Tensor {
  Half* data;
  i64 b, h, n, d;  // strides in elements; d = 1, rows 16-byte aligned
};

struct Args {
  Tensor q, k, v, out, grad_out, gq, gk, gv;
  float* lse;    // [B, H, Nq], natural logarithm
  float* delta;  // [B, H, Nq]
  i64 batch, heads, kv_heads, nq, nk;
  float* gq_sum;  // [B, H, Nq, HEAD_DIM], zeroed by the forward of a training step or by `prepare`
  double scale;
};

constexpr int kThreads = 256;                     // two warpgroups
constexpr int kDim = HEAD_DIM <= 64 ? 64 : 128;   // padded head size
constexpr int kDepth = (HEAD_DIM + 15) / 16;      // products along the head
static_assert(HEAD_DIM <= 128, "heads of up to 128");
constexpr int kOwned = 128;                       // queries of a forward block, keys of a backward block
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ __forceinline__ Half* head_of(const Tensor& x, i64 batch, i64 head) { return x.data + batch * x.b + head * x.h; }

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Rows [row, row + Rows) of a head as a swizzled tile; rows from `limit` on and columns past HEAD_DIM are zero.
template <int Rows>
__device__ __forceinline__ void load_tile(unsigned tile, const Half* head, i64 stride_n, i64 row, i64 limit) {
  constexpr int units = kDim / 8, rows = kThreads / units;
  const int r = threadIdx.x / units, c = threadIdx.x % units, left = (HEAD_DIM - c * 8) * 2;
  const int size = left <= 0 ? 0 : left < 16 ? left : 16;
  const Half* from = head + (row + r) * stride_n + c * 8;
  unsigned to = tile + (c / 8) * Rows * 128 + r * 128 + (((c % 8) ^ (r % 8)) << 4);
#pragma unroll
  for (int i = 0; i < Rows / rows; ++i, from += rows * stride_n, to += rows * 128) {
    const int bytes = row + r + i * rows < limit ? size : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
  }
}

template <int Count>
__device__ __forceinline__ void load_vector(unsigned to, const float* from, i64 first, i64 limit) {
  if (threadIdx.x < Count) {
    const bool inside = first + threadIdx.x < limit;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + threadIdx.x * 4),
                 "l"(inside ? from + first + threadIdx.x : from), "r"(inside ? 4 : 0));
  }
}

__device__ __forceinline__ float exp2_fast(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
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
__device__ __forceinline__ void store_rows(const Tensor& x, Half* head, i64 row, i64 limit, const float (&sum)[Sums], float top,
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
      if (d + 1 < HEAD_DIM) {
        *reinterpret_cast<unsigned*>(to + d) = two;
      } else if (d < HEAD_DIM) {
        to[d] = static_cast<Half>(two);
      }
    }
  }
}

// The products of tiled attention by float32 multiply-adds, in the thread layout of the matrix units: a lane has rows g and
// g + 8 and columns 2t and 2t + 1 of a 16 x 8 tile of scores, and columns 4t .. 4t + 3 of a 16-wide tile of a result.
#pragma once
#include "tiled_fragments.cuh"

__device__ __forceinline__ void load_four(float* x, unsigned address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(address));
}

// Two rows of a tile, eight columns.
struct RowPair {
  float first[8], second[8];
};
typedef RowPair OperandA, OperandB;

// Rows g and g + 8 of 16.
__device__ __forceinline__ RowPair left_along(unsigned base, int offset) {
  RowPair a;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    load_four(a.first + 4 * half, at(base, offset + 16 * half));
    load_four(a.second + 4 * half, at(base, offset + 8 * kPitch + 16 * half));
  }
  return a;
}

// Rows 2t and 2t + 1 of 8; the swizzle of an odd row is that of the row before, four units further.
__device__ __forceinline__ RowPair right_along(unsigned base, int offset) {
  RowPair b;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    load_four(b.first + 4 * half, at(base, offset + 16 * half));
    load_four(b.second + 4 * half, at(base ^ 64, offset + kPitch + 16 * half));
  }
  return b;
}

template <typename R>
struct Sum;

template <>
struct Sum<float> {
  float c[4];
  // Eight products are summed apart: chains of additions stay short, which tells where scores are large.
  __device__ __forceinline__ void add(const RowPair& a, const RowPair& b) {
    float sum[4] = {a.first[0] * b.first[0], a.first[0] * b.second[0], a.second[0] * b.first[0], a.second[0] * b.second[0]};
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      sum[0] = fmaf(a.first[i], b.first[i], sum[0]), sum[1] = fmaf(a.first[i], b.second[i], sum[1]);
      sum[2] = fmaf(a.second[i], b.first[i], sum[2]), sum[3] = fmaf(a.second[i], b.second[i], sum[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] += sum[i];
  }
  __device__ __forceinline__ float value(int i) const { return c[i]; }
};

// result += p * rows of a tile; the weights of a row are with the four lanes that computed it. A step is summed apart,
// which keeps the chains of additions short.
__device__ __forceinline__ void accumulate(float (&result)[2 * kGroups][4], const float (&p)[kTiles][4], unsigned across) {
  float sum[2 * kGroups][4] = {};
  const int quad = threadIdx.x & 28;
#pragma unroll
  for (int row = 0; row < kShare; ++row) {
    const int j = row / 8, e = row % 2, from = quad | row % 8 / 2;
    const float top = __shfl_sync(~0u, p[j][e], from), bottom = __shfl_sync(~0u, p[j][2 + e], from);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      float x[4];
      load_four(x, at(across, row * kPitch + ((n * 64) ^ (swizzle(row) << 4))));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float(&pair)[4] = sum[2 * n + i % 2];  // see COLUMN_OF
        pair[i / 2] = fmaf(top, x[i], pair[i / 2]), pair[2 + i / 2] = fmaf(bottom, x[i], pair[2 + i / 2]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8 * kGroups; ++i) result[i / 4][i % 4] += sum[i / 4][i % 4];
}

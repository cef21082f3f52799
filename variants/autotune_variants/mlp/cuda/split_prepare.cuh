// Tensors as sums of two float16 numbers: a warp for every token, some blocks for the weights.
#pragma once
#include "split_operands.cuh"

constexpr int kPrepareThreads = 1024, kGateBlocks = 16, kDownBlocks = 8;

__device__ __forceinline__ void store_split(Half* to, i64 plane, float x) {
  unsigned high, low;
  split(x, 0, high, low);
  to[0] = static_cast<Half>(high), to[plane] = static_cast<Half>(low);
}

__device__ __forceinline__ float over_warp(float x) {
#pragma unroll
  for (int bit = 1; bit < 32; bit *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, bit));
  return x;
}

// The largest magnitude of a weight, found by every block that splits a part of it.
__device__ __forceinline__ float largest_of(const float* weight, const Strides& s, int rows, int columns) {
  float largest = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < rows * columns; i += kPrepareThreads) largest = fmaxf(largest, fabs(weight[i / columns * s.n + i % columns * s.d]));
  return largest;
}

__device__ __forceinline__ float over_block(float x, float* space) {
  x = over_warp(x);
  if (threadIdx.x % 32 == 0) space[threadIdx.x / 32] = x;
  __syncthreads();
  return over_warp(space[threadIdx.x % 32]);
}

__device__ __forceinline__ void split_weight(Half* to, const float* weight, const Strides& s, int rows, int columns, int padded_rows, int padded_columns,
                                             float scale, int block, int blocks) {
  const int all = padded_rows * padded_columns;
  for (int i = block * kPrepareThreads + threadIdx.x; i < all; i += blocks * kPrepareThreads) {
    const int row = i / padded_columns, column = i % padded_columns;
    const bool inside = row < rows && column < columns;
    store_split(to + i, all, inside ? weight[row * s.n + column * s.d] * scale : 0);
  }
}

// A token's row, scaled: lanes hold two features each.
__device__ __forceinline__ void split_row(Half* to, i64 plane, float* scale, const float (&x)[2]) {
  const int lane = threadIdx.x % 32;
  const Scale found(over_warp(fmaxf(fabs(x[0]), fabs(x[1]))));
  store_split(to + lane, plane, x[0] * found.up);
  store_split(to + lane + 32, plane, x[1] * found.up);
  if (lane == 0) *scale = found.down;
}

__device__ __forceinline__ void read_row(float (&x)[2], const float* from, const Strides& s, i64 row, bool inside) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) x[i] = inside && lane + 32 * i < DIM ? from[row * s.n + (lane + 32 * i) * s.d] : 0;
}

__device__ __forceinline__ void prepare_token(const Args& a, const Planes& planes, i64 row) {
  const bool inside = row < a.rows;
  float x[2];
  read_row(x, a.x, a.x_strides, row, inside);
  if (NORM) {
    float weight[2], squares = x[0] * x[0] + x[1] * x[1];
    read_row(weight, a.weight, a.weight_strides, 0, true);
#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2) squares += __shfl_xor_sync(~0u, squares, bit);
    const float inverse = inside ? 1 / sqrt(squares / DIM + static_cast<float>(a.eps)) : 0;
    x[0] *= inverse * weight[0], x[1] *= inverse * weight[1];
    if (threadIdx.x % 32 == 0) planes.inverse[row] = inverse;
  }
  split_row(planes.z + row * kWidth, planes.rows * kWidth, planes.of_z + row, x);
  if (GRADS) {
    read_row(x, a.grad_out, a.grad_out_strides, row, inside);
    split_row(planes.grad_out + row * kWidth, planes.rows * kWidth, planes.of_grad_out + row, x);
  }
}

__device__ __forceinline__ void run_prepare(const Args& a) {
  __shared__ float space[32];
  const Planes planes(a);
  int block = blockIdx.x;
  const int hidden = static_cast<int>(a.hidden), padded = static_cast<int>(planes.hidden);
  if (block < kGateBlocks) {
    const float gate = largest_of(a.w_gate, a.w_gate_strides, DIM, hidden), up = largest_of(a.w_up, a.w_up_strides, DIM, hidden);
    const Scale scale(over_block(fmaxf(gate, up), space));
    if (block == 0 && threadIdx.x == 0) planes.of_weights[0] = scale.down;
    split_weight(planes.gate, a.w_gate, a.w_gate_strides, DIM, hidden, kWidth, padded, scale.up, block, kGateBlocks);
    split_weight(planes.up, a.w_up, a.w_up_strides, DIM, hidden, kWidth, padded, scale.up, block, kGateBlocks);
    return;
  }
  block -= kGateBlocks;
  if (block < kDownBlocks) {
    const Scale scale(over_block(largest_of(a.w_down, a.w_down_strides, hidden, DIM), space));
    if (block == 0 && threadIdx.x == 0) planes.of_weights[1] = scale.down;
    split_weight(planes.down, a.w_down, a.w_down_strides, hidden, DIM, padded, kWidth, scale.up, block, kDownBlocks);
    return;
  }
  block -= kDownBlocks;
  const i64 row = block * static_cast<i64>(kPrepareThreads / 32) + threadIdx.x / 32;
  if (row < planes.rows) prepare_token(a, planes, row);
}

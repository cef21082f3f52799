// A block's tokens from z to out and grad_x, as in tiled_tokens.cuh, with split operands.
#pragma once
#include "activation.cuh"
#include "split_operands.cuh"
#include "token_results.cuh"

constexpr int kTokenPlane = kTokens * 128, kWeightPlane = kWidth * 128;  // bytes
constexpr int kChunkBytes = 6 * kWeightPlane;                            // gate, up, down

struct TokenPlanes {
  unsigned char *z, *grad_out, *chunks;
  float *inverse, *sums;
  __device__ __forceinline__ explicit TokenPlanes(unsigned char* shared) {
    z = shared, grad_out = z + 2 * kTokenPlane;
    chunks = grad_out + (GRADS ? 2 * kTokenPlane : 0);                 // two of them
    inverse = reinterpret_cast<float*>(chunks + 2 * kChunkBytes);      // [kTokens]
    sums = inverse + kTokens;                                          // [ROW_WARPS][kDim]
  }
};

__device__ __forceinline__ void load_chunk(const Planes& planes, unsigned char* chunk, i64 first) {
  const i64 plane = planes.hidden * kWidth;
  load_planes<kWidth, kTokenThreads>(chunk, planes.gate + first, planes.hidden, plane);
  load_planes<kWidth, kTokenThreads>(chunk + 2 * kWeightPlane, planes.up + first, planes.hidden, plane);
  load_planes<kWidth, kTokenThreads>(chunk + 4 * kWeightPlane, planes.down + first * kWidth, kWidth, plane);
}

// What undoes the scaling of a lane's two rows, by product.
struct Factors {
  float hidden[2], above[2], out, grad;
};

// 16 tokens and 16 hidden features from `feature` of a chunk on: adds to out and to the gradient of z.
__device__ __forceinline__ void take_features(const TokenPlanes& tiles, const unsigned char* chunk, const Place& p, const Factors& f, int row, int feature,
                                              float (&out)[kDepth][4], float (&grad)[kDepth][4]) {
  const unsigned char *gate = chunk, *up = chunk + 2 * kWeightPlane, *down = chunk + 4 * kWeightPlane;
  const int unit = feature / 8;
  float u[2][4] = {}, v[2][4] = {}, above[2][4] = {};
  {
    float small_u[2][4] = {}, small_v[2][4] = {}, small_above[2][4] = {};
#pragma unroll
    for (int k = 0; k < kSixteens; ++k) {
      const Split z = left(tiles.z, kTokenPlane, p, row, 2 * k);
      const Split of_gate = right(gate, kWeightPlane, p, 16 * k, unit), of_up = right(up, kWeightPlane, p, 16 * k, unit);
#pragma unroll
      for (int j = 0; j < 2; ++j) add_split(u[j], small_u[j], z, of_gate, j), add_split(v[j], small_v[j], z, of_up, j);
      if (GRADS) {
        const Split g = left(tiles.grad_out, kTokenPlane, p, row, 2 * k), of_down = right_turned(down, kWeightPlane, p, feature, 2 * k);
#pragma unroll
        for (int j = 0; j < 2; ++j) add_split(above[j], small_above[j], g, of_down, j);
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int j = i / 4, e = i % 4, half = e / 2;
      const Gated<float> found = gated((u[j][e] + small_u[j][e]) * f.hidden[half], (v[j][e] + small_v[j][e]) * f.hidden[half],
                                       (above[j][e] + small_above[j][e]) * f.above[half]);
      u[j][e] = found.grad_u, v[j][e] = found.grad_v, above[j][e] = found.h;
    }
  }
  if (OUT) {
    const Scale top(row_largest(above[0][0], above[0][1], above[1][0], above[1][1])), bottom(row_largest(above[0][2], above[0][3], above[1][2], above[1][3]));
    const Split h = split_left(above[0], above[1], top.up, bottom.up);
#pragma unroll
    for (int n = 0; n < kSixteens; ++n) {
      const Split of_down = right(down, kWeightPlane, p, feature, 2 * n);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float sum[4] = {};
        add_split(sum, sum, h, of_down, j);  // the small products first
#pragma unroll
        for (int e = 0; e < 4; ++e) out[2 * n + j][e] += sum[e] * ((e < 2 ? top.down : bottom.down) * f.out);
      }
    }
  }
  if (GRADS) {
    const float u_top = row_largest(u[0][0], u[0][1], u[1][0], u[1][1]), v_top = row_largest(v[0][0], v[0][1], v[1][0], v[1][1]);
    const float u_bottom = row_largest(u[0][2], u[0][3], u[1][2], u[1][3]), v_bottom = row_largest(v[0][2], v[0][3], v[1][2], v[1][3]);
    const Scale top(fmaxf(u_top, v_top)), bottom(fmaxf(u_bottom, v_bottom));
    const Split grad_u = split_left(u[0], u[1], top.up, bottom.up), grad_v = split_left(v[0], v[1], top.up, bottom.up);
#pragma unroll
    for (int n = 0; n < kSixteens; ++n) {
      const Split of_gate = right_turned(gate, kWeightPlane, p, 16 * n, unit), of_up = right_turned(up, kWeightPlane, p, 16 * n, unit);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float sum[4] = {}, small[4] = {};
        add_split(sum, small, grad_u, of_gate, j);
        add_split(sum, small, grad_v, of_up, j);
#pragma unroll
        for (int e = 0; e < 4; ++e) grad[2 * n + j][e] += (sum[e] + small[e]) * ((e < 2 ? top.down : bottom.down) * f.grad);
      }
    }
  }
}

__device__ __forceinline__ void run_tokens(const Args& a, unsigned char* shared) {
  const TokenPlanes tiles(shared);
  const Planes planes(a);
  const i64 first = blockIdx.x * static_cast<i64>(kTokens);
  load_planes<kTokens, kTokenThreads>(tiles.z, planes.z + first * kWidth, kWidth, planes.rows * kWidth);
  if (GRADS) load_planes<kTokens, kTokenThreads>(tiles.grad_out, planes.grad_out + first * kWidth, kWidth, planes.rows * kWidth);
  load_chunk(planes, tiles.chunks, 0);
  commit_copies();
  const int warp = threadIdx.x / 32, row = warp % ROW_WARPS * 16, group = warp / ROW_WARPS;
  const Lane lane;
  const Place p;
  Factors f = {};
  f.out = planes.of_weights[1], f.grad = planes.of_weights[0];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 own = first + row + lane.g + 8 * half;
    f.hidden[half] = planes.of_z[own] * planes.of_weights[0];
    if (GRADS) f.above[half] = planes.of_grad_out[own] * planes.of_weights[1];
  }
  if (NORM && GRADS) {
    for (int i = threadIdx.x; i < kTokens; i += kTokenThreads) tiles.inverse[i] = planes.inverse[first + i];
  }
  float out[kDepth][4] = {}, grad[kDepth][4] = {};
  const int chunks = static_cast<int>(planes.hidden / CHUNK);
  for (int c = 0; c < chunks; ++c) {
    if (c + 1 < chunks) load_chunk(planes, tiles.chunks + (c + 1) % 2 * kChunkBytes, (c + 1) * static_cast<i64>(CHUNK));
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    constexpr int share = CHUNK / SPLIT_WARPS;
#pragma unroll 1
    for (int feature = group * share; feature < (group + 1) * share; feature += 16)
      take_features(tiles, tiles.chunks + c % 2 * kChunkBytes, p, f, row, feature, out, grad);
    __syncthreads();
  }
  float* space = reinterpret_cast<float*>(tiles.z);
  if (OUT) add_groups(out, space);
  if (GRADS) add_groups(grad, space);
  Pair shares[kDepth] = {};
  if (OUT && group == 0) store_out(a, first + row, lane, out);
  if (GRADS && group == 0) store_grad_x(a, first + row, lane, tiles.inverse + row, grad, shares);
  if (NORM && GRADS) store_weight_share(a, tiles.sums, lane, group == 0, shares);
}

// A block's tokens from x to out and grad_x: their hidden activations stay in registers, weights pass by in chunks.
#pragma once
#include "activation.cuh"
#include "tiled_fragments.cuh"
#include "token_results.cuh"

constexpr int kChunkSize = 2 * kDim * CHUNK + CHUNK * kPitch;  // gate, up, down

struct TokenTiles {
  Real *z, *grad_out, *chunks, *inverse, *sums;
  __device__ __forceinline__ explicit TokenTiles(unsigned char* shared) {
    z = reinterpret_cast<Real*>(shared);                  // [kTokens][kPitch]
    grad_out = z + kTokens * kPitch;                      // likewise
    chunks = grad_out + (GRADS ? kTokens * kPitch : 0);   // two of them
    inverse = chunks + 2 * kChunkSize;                    // [kTokens]
    sums = inverse + kTokens;                             // [ROW_WARPS][kDim]
  }
};

__device__ __forceinline__ void load_chunk(const Args& a, Real* chunk, i64 first) {
  const i64 left = a.hidden - first;
  load_tile<kDim, CHUNK, CHUNK, kTokenThreads>(chunk, a.w_gate + first * a.w_gate_strides.d, a.w_gate_strides, DIM, left);
  load_tile<kDim, CHUNK, CHUNK, kTokenThreads>(chunk + kDim * CHUNK, a.w_up + first * a.w_up_strides.d, a.w_up_strides, DIM, left);
  load_tile<CHUNK, kDim, kPitch, kTokenThreads>(chunk + 2 * kDim * CHUNK, a.w_down + first * a.w_down_strides.n, a.w_down_strides, left, DIM);
}

// x in its tile becomes z, a row at a time by a warp; z is kept in memory for the gradients of the weights.
__device__ __forceinline__ void normalise_tile(const Args& a, const TokenTiles& tiles, i64 first) {
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < kTokens; row += kTokenThreads / 32) {
    Real squares = 0;
    for (int d = lane; d < DIM; d += 32) {
      const Real x = tiles.z[place(row, d, kPitch)];
      squares += x * x;
    }
#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2) squares += __shfl_xor_sync(~0u, squares, bit);
    const bool inside = first + row < a.rows;
    const Real inverse = inside ? 1 / sqrt(squares / DIM + static_cast<Real>(a.eps)) : 0;
    for (int d = lane; d < DIM; d += 32) {
      Real* element = tiles.z + place(row, d, kPitch);
      const Data z = narrow(*element * inverse * wide(a.weight[d * a.weight_strides.d]));
      *element = wide(z);
      if (GRADS && inside) a.z[(first + row) * DIM + d] = z;
    }
    if (lane == 0) tiles.inverse[row] = inverse;
  }
}

// 16 tokens and 16 hidden features from `feature` of a chunk on: adds to out and to the gradient of z.
__device__ __forceinline__ void take_features(const TokenTiles& tiles, const Real* chunk, int row, int feature, Real (&out)[kDepth][4],
                                              Real (&grad)[kDepth][4]) {
  const Lane lane, own(feature);
  const Real* gate = chunk + feature / kLine * kLine;
  const Real* up = gate + kDim * CHUNK;
  const Real* down = chunk + 2 * kDim * CHUNK + feature * kPitch;
  Real u[2][4] = {}, v[2][4] = {}, above[2][4] = {};
#pragma unroll
  for (int start = 0; start < kDepth; start += kChain) {
    Sum<Real> us[2] = {Sum<Real>(u[0]), Sum<Real>(u[1])}, vs[2] = {Sum<Real>(v[0]), Sum<Real>(v[1])};
    Sum<Real> as[2] = {Sum<Real>(above[0]), Sum<Real>(above[1])};
#pragma unroll
    for (int k = start; k < start + kChain && k < kDepth; ++k) {
      const Left z = left_of(along<kPitch>(tiles.z, lane, row, 8 * k), along<kPitch>(tiles.z, lane, row + 8, 8 * k));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        us[j].add(z, right_of(across<CHUNK>(gate, own, 8 * k, 8 * j)));
        vs[j].add(z, right_of(across<CHUNK>(up, own, 8 * k, 8 * j)));
      }
      if (GRADS) {
        const Left g = left_of(along<kPitch>(tiles.grad_out, lane, row, 8 * k), along<kPitch>(tiles.grad_out, lane, row + 8, 8 * k));
#pragma unroll
        for (int j = 0; j < 2; ++j) as[j].add(g, right_of(along<kPitch>(down, lane, 8 * j, 8 * k)));
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) us[j].finish(u[j]), vs[j].finish(v[j]), as[j].finish(above[j]);
  }
  Left h[2], grad_u[2], grad_v[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Gated<Real> found = gated(u[j][i], v[j][i], above[j][i]);
      u[j][i] = found.grad_u, v[j][i] = found.grad_v, above[j][i] = found.h;
    }
    h[j] = left_of(above[j]), grad_u[j] = left_of(u[j]), grad_v[j] = left_of(v[j]);
  }
#pragma unroll
  for (int n = 0; n < kDepth; ++n) {
    if (OUT) {
      Sum<Real> sum(out[n]);
#pragma unroll
      for (int j = 0; j < 2; ++j) sum.add(h[j], right_of(across<kPitch>(down, lane, 8 * j, 8 * n)));
      sum.finish(out[n]);
    }
    if (GRADS) {
      Sum<Real> sum(grad[n]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        sum.add(grad_u[j], right_of(along<CHUNK>(gate, own, 8 * n, 8 * j)));
        sum.add(grad_v[j], right_of(along<CHUNK>(up, own, 8 * n, 8 * j)));
      }
      sum.finish(grad[n]);
    }
  }
}

__device__ __forceinline__ void run_tokens(const Args& a, unsigned char* shared) {
  const TokenTiles tiles(shared);
  const i64 first = blockIdx.x * static_cast<i64>(kTokens), left = a.rows - first;
  load_tile<kTokens, kDim, kPitch, kTokenThreads>(tiles.z, a.x + first * a.x_strides.n, a.x_strides, left, DIM);
  if (GRADS) load_tile<kTokens, kDim, kPitch, kTokenThreads>(tiles.grad_out, a.grad_out + first * a.grad_out_strides.n, a.grad_out_strides, left, DIM);
  commit_copies();
  load_chunk(a, tiles.chunks, 0);
  commit_copies();
  if (NORM) {
    wait_copies<1>();
    __syncthreads();
    normalise_tile(a, tiles, first);
  }
  const int warp = threadIdx.x / 32, row = warp % ROW_WARPS * 16, group = warp / ROW_WARPS;
  Real out[kDepth][4] = {}, grad[kDepth][4] = {};
  const int chunks = static_cast<int>((a.hidden + CHUNK - 1) / CHUNK);
  for (int c = 0; c < chunks; ++c) {
    if (c + 1 < chunks) load_chunk(a, tiles.chunks + (c + 1) % 2 * kChunkSize, (c + 1) * static_cast<i64>(CHUNK));
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    constexpr int share = CHUNK / SPLIT_WARPS;
#pragma unroll 1
    for (int f = group * share; f < (group + 1) * share; f += 16) take_features(tiles, tiles.chunks + c % 2 * kChunkSize, row, f, out, grad);
    __syncthreads();
  }
  if (OUT) add_groups(out, tiles.z);
  if (GRADS) add_groups(grad, tiles.z);
  const Lane lane;
  Pair shares[kDepth] = {};
  if (OUT && group == 0) store_out(a, first + row, lane, out);
  if (GRADS && group == 0) store_grad_x(a, first + row, lane, tiles.inverse + row, grad, shares);
  if (NORM && GRADS) store_weight_share(a, tiles.sums, lane, group == 0, shares);
}

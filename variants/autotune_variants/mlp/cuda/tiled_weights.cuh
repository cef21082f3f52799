// Gradients of the weights: a block holds its hidden features' weights, and meets a share of the tokens.
//
// Activations are computed as their transposes, features by tokens: so they are left operands of the products with the
// tokens. Partners compute those of different tokens and exchange them, then each adds to its own part of the D features.
#pragma once
#include "activation.cuh"
#include "tiled_fragments.cuh"
#include "weight_sums.cuh"

constexpr int kOwnDepth = kDepth / PARTNERS, kStepTiles = STEP / 8;
constexpr int kTokenSize = TILE * kPitch;
constexpr int kFragment = 4 * 32;  // a result of 16 by 8 in a warp's registers

struct WeightTiles {
  Real *gate, *up, *down, *tokens, *exchange;
  __device__ __forceinline__ explicit WeightTiles(unsigned char* shared) {
    gate = reinterpret_cast<Real*>(shared);     // [kDim][kFeatures]
    up = gate + kDim * kFeatures;               // likewise
    down = up + kDim * kFeatures;               // [kFeatures][kPitch]
    tokens = down + kFeatures * kPitch;         // two of z and grad_out, [TILE][kPitch] each
    exchange = tokens + 4 * kTokenSize;         // of partners: [groups][kStepTiles][3][kFragment]
  }
};

__device__ __forceinline__ void load_tokens(const Args& a, Real* tokens, i64 first) {
  const Strides packed = {0, 0, DIM, 1}, &strides = NORM ? packed : a.x_strides;
  const Data* z = NORM ? a.z : a.x;
  load_tile<TILE, kDim, kPitch, kWeightThreads>(tokens, z + first * strides.n, strides, a.rows - first, DIM);
  load_tile<TILE, kDim, kPitch, kWeightThreads>(tokens + kTokenSize, a.grad_out + first * a.grad_out_strides.n, a.grad_out_strides, a.rows - first, DIM);
}

// h, grad_u and grad_v of 16 features (rows) and 8 tokens.
__device__ __forceinline__ void activations(const WeightTiles& tiles, int feature, const Real* z, const Real* grad_out, Real (&h)[4],
                                            Real (&grad_u)[4], Real (&grad_v)[4]) {
  const Lane lane, own(feature);
  const Real* gate = tiles.gate + feature / kLine * kLine;
  const Real* up = tiles.up + feature / kLine * kLine;
  const Real* down = tiles.down + feature * kPitch;
  Real u[4] = {}, v[4] = {}, above[4] = {};
#pragma unroll
  for (int start = 0; start < kDepth; start += kChain) {
    Sum<Real> us(u), vs(v), as(above);
#pragma unroll
    for (int k = start; k < start + kChain && k < kDepth; ++k) {
      const Pair gate_top = across<kFeatures>(gate, own, 8 * k, 0), gate_bottom = across<kFeatures>(gate, own, 8 * k, 8);
      const Pair up_top = across<kFeatures>(up, own, 8 * k, 0), up_bottom = across<kFeatures>(up, own, 8 * k, 8);
      const Right right = right_of(along<kPitch>(z, lane, 0, 8 * k));
      us.add(left_of(gate_top, gate_bottom), right);
      vs.add(left_of(up_top, up_bottom), right);
      as.add(left_of(along<kPitch>(down, lane, 0, 8 * k), along<kPitch>(down, lane, 8, 8 * k)), right_of(along<kPitch>(grad_out, lane, 0, 8 * k)));
    }
    us.finish(u), vs.finish(v), as.finish(above);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Gated<Real> found = gated(u[i], v[i], above[i]);
    h[i] = found.h, grad_u[i] = found.grad_u, grad_v[i] = found.grad_v;
  }
}

struct Gradients {
  Real gate[kOwnDepth][4], up[kOwnDepth][4], down[kOwnDepth][4];
};

// STEP tokens: activations, exchanged among partners, and their products with the tokens.
__device__ __forceinline__ void take_step(const WeightTiles& tiles, int group, int partner, const Real* z, const Real* grad_out, Gradients& sums) {
  Real made[kStepTiles][3][4];
  Real* exchange = tiles.exchange + group * kStepTiles * 3 * kFragment + threadIdx.x % 32;
  if (PARTNERS > 1) __syncthreads();  // the last step's were read
#pragma unroll
  for (int i = 0; i < kStepTiles / PARTNERS; ++i) {
    const int tile = i * PARTNERS + partner;
    activations(tiles, 16 * group, z + tile * 8 * kPitch, grad_out + tile * 8 * kPitch, made[i][0], made[i][1], made[i][2]);
#pragma unroll
    for (int e = 0; e < 12; ++e) {
      if (PARTNERS > 1) exchange[(tile * 3 + e / 4) * kFragment + e % 4 * 32] = made[i][e / 4][e % 4];
    }
  }
  if (PARTNERS > 1) __syncthreads();
  Left lefts[kStepTiles][3];
#pragma unroll
  for (int tile = 0; tile < kStepTiles; ++tile) {
#pragma unroll
    for (int which = 0; which < 3; ++which) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (PARTNERS > 1) made[tile][which][e] = exchange[(tile * 3 + which) * kFragment + e * 32];
      }
      lefts[tile][which] = left_of(made[tile][which]);
    }
  }
  const int column = partner * kOwnDepth * 8;
  const Lane own(column);
  z += column / kLine * kLine, grad_out += column / kLine * kLine;
#pragma unroll
  for (int n = 0; n < kOwnDepth; ++n) {
    Sum<Real> gate(sums.gate[n]), up(sums.up[n]), down(sums.down[n]);
#pragma unroll
    for (int tile = 0; tile < kStepTiles; ++tile) {
      const Right of_z = right_of(across<kPitch>(z, own, 8 * tile, 8 * n));
      gate.add(lefts[tile][1], of_z);
      up.add(lefts[tile][2], of_z);
      down.add(lefts[tile][0], right_of(across<kPitch>(grad_out, own, 8 * tile, 8 * n)));
    }
    gate.finish(sums.gate[n]), up.finish(sums.up[n]), down.finish(sums.down[n]);
  }
}

__device__ __forceinline__ void store_part(const Args& a, i64 share, i64 which, i64 first, int column, const Lane& lane, const Real (&sum)[kOwnDepth][4]) {
  Real* part = part_of(a, share, which);
#pragma unroll
  for (int i = 0; i < 2 * kOwnDepth; ++i) {
    const i64 feature = first + lane.g + 8 * (i % 2);
    const int d = column + i / 2 * 8 + 2 * lane.t;
    if (feature >= a.hidden) continue;
    if (d < DIM) leave(part, feature, d, sum[i / 2][i % 2 * 2]);
    if (d + 1 < DIM) leave(part, feature, d + 1, sum[i / 2][i % 2 * 2 + 1]);
  }
}

__device__ __forceinline__ void run_weights(const Args& a, unsigned char* shared) {
  const WeightTiles tiles(shared);
  const i64 chunks = (a.hidden + kFeatures - 1) / kFeatures, feature = blockIdx.x % chunks * kFeatures, share = blockIdx.x / chunks;
  const i64 count = (a.rows + TILE - 1) / TILE, begin = share * count / a.shares, end = (share + 1) * count / a.shares;
  const i64 left = a.hidden - feature;
  load_tile<kDim, kFeatures, kFeatures, kWeightThreads>(tiles.gate, a.w_gate + feature * a.w_gate_strides.d, a.w_gate_strides, DIM, left);
  load_tile<kDim, kFeatures, kFeatures, kWeightThreads>(tiles.up, a.w_up + feature * a.w_up_strides.d, a.w_up_strides, DIM, left);
  load_tile<kFeatures, kDim, kPitch, kWeightThreads>(tiles.down, a.w_down + feature * a.w_down_strides.n, a.w_down_strides, left, DIM);
  if (begin < end) load_tokens(a, tiles.tokens, begin * TILE);
  commit_copies();
  const int warp = threadIdx.x / 32, group = warp / PARTNERS, partner = warp % PARTNERS;
  Gradients sums = {};
  for (i64 i = begin; i < end; ++i) {
    if (i + 1 < end) load_tokens(a, tiles.tokens + (i + 1 - begin) % 2 * 2 * kTokenSize, (i + 1) * TILE);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    const Real* z = tiles.tokens + (i - begin) % 2 * 2 * kTokenSize;
#pragma unroll 1
    for (int step = 0; step < TILE; step += STEP) take_step(tiles, group, partner, z + step * kPitch, z + kTokenSize + step * kPitch, sums);
    __syncthreads();
  }
  const Lane lane;
  const int column = partner * kOwnDepth * 8;
  const i64 first = feature + 16 * group;
  store_part(a, share, 0, first, column, lane, sums.gate);
  store_part(a, share, 1, first, column, lane, sums.up);
  store_part(a, share, 2, first, column, lane, sums.down);
}

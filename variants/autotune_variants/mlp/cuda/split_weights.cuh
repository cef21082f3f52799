// Gradients of the weights, as in tiled_weights.cuh, with split operands: each of two partners computes the activations of
// 16 tokens of a tile, and adds to every other 16 of the D features.
#pragma once
#include "activation.cuh"
#include "split_operands.cuh"
#include "weight_sums.cuh"

constexpr int kOwn = (kSixteens + 1) / 2;
constexpr int kWeightPlane = kWidth * 128, kTilePlane = TILE * 128;  // bytes
constexpr int kTileBytes = 4 * kTilePlane;                           // z, grad_out
constexpr int kWords = 28;                                           // that a lane gives its partner
static_assert(TILE == 32, "16 tokens for each of two partners");

struct WeightPlanes {
  unsigned char *gate, *up, *down, *tokens;
  unsigned* exchange;
  __device__ __forceinline__ explicit WeightPlanes(unsigned char* shared) {
    gate = shared, up = gate + 2 * kWeightPlane, down = up + 2 * kWeightPlane;
    tokens = down + 2 * kWeightPlane;                                       // two tiles
    exchange = reinterpret_cast<unsigned*>(tokens + 2 * kTileBytes);        // [FEATURE_WARPS][kWords][32]
  }
};

__device__ __forceinline__ void load_tokens(const Planes& planes, unsigned char* tile, i64 first) {
  load_planes<TILE, kWeightThreads>(tile, planes.z + first * kWidth, kWidth, planes.rows * kWidth);
  load_planes<TILE, kWeightThreads>(tile + 2 * kTilePlane, planes.grad_out + first * kWidth, kWidth, planes.rows * kWidth);
}

// h, grad_u and grad_v of 16 features and 16 tokens as left operands, and what undoes the scaling of a lane's two rows.
struct Made {
  Split h, grad_u, grad_v;
  float of_h[2], of_grad[2];
};

__device__ __forceinline__ Made activations(const WeightPlanes& tiles, const Planes& planes, const Place& p, const unsigned char* tile, int feature, int token,
                                            i64 first, float of_gate, float of_down) {
  const Lane lane;
  float of_z[2][2], of_grad_out[2][2];  // of this lane's tokens
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const i64 row = first + token + 8 * (i / 2) + 2 * lane.t + i % 2;
    of_z[i / 2][i % 2] = planes.of_z[row], of_grad_out[i / 2][i % 2] = planes.of_grad_out[row];
  }
  float u[2][4] = {}, v[2][4] = {}, above[2][4] = {}, small_u[2][4] = {}, small_v[2][4] = {}, small_above[2][4] = {};
#pragma unroll
  for (int k = 0; k < kSixteens; ++k) {
    const Split z = right_turned(tile, kTilePlane, p, token, 2 * k), g = right_turned(tile + 2 * kTilePlane, kTilePlane, p, token, 2 * k);
    const Split gate = left_turned(tiles.gate, kWeightPlane, p, 16 * k, feature / 8), up = left_turned(tiles.up, kWeightPlane, p, 16 * k, feature / 8);
    const Split down = left(tiles.down, kWeightPlane, p, feature, 2 * k);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      add_split(u[j], small_u[j], gate, z, j), add_split(v[j], small_v[j], up, z, j), add_split(above[j], small_above[j], down, g, j);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int j = i / 4, e = i % 4;
    const float z = of_z[j][e % 2], g = of_grad_out[j][e % 2];
    const Gated<float> found = gated((u[j][e] + small_u[j][e]) * (z * of_gate), (v[j][e] + small_v[j][e]) * (z * of_gate),
                                     (above[j][e] + small_above[j][e]) * (g * of_down));
    // The products with z and grad_out as they are in their planes want these.
    u[j][e] = found.grad_u * z, v[j][e] = found.grad_v * z, above[j][e] = found.h * g;
  }
  const Scale h_top(row_largest(above[0][0], above[0][1], above[1][0], above[1][1])), h_bottom(row_largest(above[0][2], above[0][3], above[1][2], above[1][3]));
  const float u_top = row_largest(u[0][0], u[0][1], u[1][0], u[1][1]), v_top = row_largest(v[0][0], v[0][1], v[1][0], v[1][1]);
  const float u_bottom = row_largest(u[0][2], u[0][3], u[1][2], u[1][3]), v_bottom = row_largest(v[0][2], v[0][3], v[1][2], v[1][3]);
  const Scale top(fmaxf(u_top, v_top)), bottom(fmaxf(u_bottom, v_bottom));
  return {split_left(above[0], above[1], h_top.up, h_bottom.up), split_left(u[0], u[1], top.up, bottom.up), split_left(v[0], v[1], top.up, bottom.up),
          {h_top.down, h_bottom.down}, {top.down, bottom.down}};
}

__device__ __forceinline__ void give(unsigned* to, const Made& made) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[i * 32] = made.h.high[i], to[(4 + i) * 32] = made.h.low[i];
    to[(8 + i) * 32] = made.grad_u.high[i], to[(12 + i) * 32] = made.grad_u.low[i];
    to[(16 + i) * 32] = made.grad_v.high[i], to[(20 + i) * 32] = made.grad_v.low[i];
    to[(24 + i) * 32] = __float_as_uint(i < 2 ? made.of_h[i] : made.of_grad[i - 2]);
  }
}
__device__ __forceinline__ Made taken(const unsigned* from) {
  Made made;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    made.h.high[i] = from[i * 32], made.h.low[i] = from[(4 + i) * 32];
    made.grad_u.high[i] = from[(8 + i) * 32], made.grad_u.low[i] = from[(12 + i) * 32];
    made.grad_v.high[i] = from[(16 + i) * 32], made.grad_v.low[i] = from[(20 + i) * 32];
    (i < 2 ? made.of_h[i] : made.of_grad[i - 2]) = __uint_as_float(from[(24 + i) * 32]);
  }
  return made;
}

struct Gradients {
  float gate[2 * kOwn][4], up[2 * kOwn][4], down[2 * kOwn][4];
};

// result += left right, 16 by 16 by 8, undoing the scaling of rows.
__device__ __forceinline__ void add_product(float (&result)[4], const Split& a, const Split& b, int half, const float (&factor)[2]) {
  float sum[4] = {};
  add_split(sum, sum, a, b, half);  // the small products first
#pragma unroll
  for (int e = 0; e < 4; ++e) result[e] += sum[e] * factor[e / 2];
}

__device__ __forceinline__ void take_tile(const WeightPlanes& tiles, const Planes& planes, const Place& p, const unsigned char* tile, int group, int partner,
                                          i64 first, float of_gate, float of_down, Gradients& sums) {
  unsigned* exchange = tiles.exchange + group * 2 * kWords * 32 + threadIdx.x % 32;
  give(exchange + partner * kWords * 32, activations(tiles, planes, p, tile, 16 * group, 16 * partner, first, of_gate, of_down));
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Made made = taken(exchange + half * kWords * 32);
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const int sixteen = 2 * n + partner;
      if (sixteen >= kSixteens) continue;
      const Split z = right(tile, kTilePlane, p, 16 * half, 2 * sixteen), g = right(tile + 2 * kTilePlane, kTilePlane, p, 16 * half, 2 * sixteen);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        add_product(sums.gate[2 * n + j], made.grad_u, z, j, made.of_grad);
        add_product(sums.up[2 * n + j], made.grad_v, z, j, made.of_grad);
        add_product(sums.down[2 * n + j], made.h, g, j, made.of_h);
      }
    }
  }
}

__device__ __forceinline__ void store_part(const Args& a, i64 share, i64 which, i64 first, int partner, const Lane& lane, const float (&sum)[2 * kOwn][4]) {
  float* part = part_of(a, share, which);
#pragma unroll
  for (int n = 0; n < 2 * kOwn; ++n) {
    const int d = (n / 2 * 2 + partner) * 16 + n % 2 * 8 + 2 * lane.t;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const i64 feature = first + lane.g + 8 * (e / 2);
      if (feature < a.hidden && d + e % 2 < DIM) leave(part, feature, d + e % 2, sum[n][e]);
    }
  }
}

__device__ __forceinline__ void run_weights(const Args& a, unsigned char* shared) {
  const WeightPlanes tiles(shared);
  const Planes planes(a);
  const i64 chunks = planes.hidden / kWidth, feature = blockIdx.x % chunks * kWidth, share = blockIdx.x / chunks, plane = planes.hidden * kWidth;
  const i64 count = (a.rows + TILE - 1) / TILE, begin = share * count / a.shares, end = (share + 1) * count / a.shares;
  load_planes<kWidth, kWeightThreads>(tiles.gate, planes.gate + feature, planes.hidden, plane);
  load_planes<kWidth, kWeightThreads>(tiles.up, planes.up + feature, planes.hidden, plane);
  load_planes<kWidth, kWeightThreads>(tiles.down, planes.down + feature * kWidth, kWidth, plane);
  if (begin < end) load_tokens(planes, tiles.tokens, begin * TILE);
  commit_copies();
  const int warp = threadIdx.x / 32, group = warp / 2, partner = warp % 2;
  const Place p;
  const float of_gate = planes.of_weights[0], of_down = planes.of_weights[1];
  Gradients sums = {};
  for (i64 i = begin; i < end; ++i) {
    if (i + 1 < end) load_tokens(planes, tiles.tokens + (i + 1 - begin) % 2 * kTileBytes, (i + 1) * TILE);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    take_tile(tiles, planes, p, tiles.tokens + (i - begin) % 2 * kTileBytes, group, partner, i * TILE, of_gate, of_down, sums);
    __syncthreads();
  }
  const Lane lane;
  const i64 own = feature + 16 * group;
  store_part(a, share, 0, own, partner, lane, sums.gate);
  store_part(a, share, 1, own, partner, lane, sums.up);
  store_part(a, share, 2, own, partner, lane, sums.down);
}

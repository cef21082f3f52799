// Online-softmax forward: two warpgroups own 64 queries each; the weights of a step are computed while
// the matrix units apply those of the step before.
#pragma once
#include "half.cuh"

constexpr int kKeyTile = KEY_STEP * kDim * 2, kScores = KEY_STEP / 2;
constexpr int kForwardBytes = kOwned * kDim * 2 + 4 * kKeyTile;

struct RowState {
  float shift[2], sum[2], scale;
};

// s becomes weights; returns by reference the factors by which earlier sums and results shrink.
__device__ __forceinline__ void advance(float (&s)[kScores], RowState& state, float (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = state.shift[half];
    float best = -__int_as_float(0x7f800000);
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) best = fmaxf(best, fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
    top = fmaxf(top, quad_max(best) * state.scale);
    factor[half] = exp2_fast(state.shift[half] - top);
    state.shift[half] = top;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * j + 2 * half + e];
        x = exp2_fast(fmaf(x, state.scale, -top));
        sum += x;
      }
    }
    state.sum[half] = state.sum[half] * factor[half] + sum;
  }
}

template <bool Train>
__device__ __forceinline__ void forward_rows(const Args& a, i64 item, char* shared) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const i64 tiles = (a.nq + kOwned - 1) / kOwned, tile = CAUSAL ? tiles - 1 - item % tiles : item % tiles;
  const i64 head = item / tiles % a.heads, batch = item / tiles / a.heads, kv_head = head / (a.heads / a.kv_heads);
  const i64 first = tile * kOwned, row = first + group * 64 + warp * 16 + g, shift = a.nk - a.nq;
  const i64 limit = CAUSAL ? max(min(a.nk, first + kOwned + shift), 0ll) : a.nk;
  const int steps = static_cast<int>((limit + KEY_STEP - 1) / KEY_STEP);
  const Half *k = head_of(a.k_data, a.k, batch, kv_head), *v = head_of(a.v_data, a.v, batch, kv_head);
  const unsigned queries = shared_address(shared), keys = queries + kOwned * kDim * 2, values = keys + 2 * kKeyTile;

  load_tile<kOwned>(queries, head_of(a.q_data, a.q, batch, head), a.q, first, a.nq);
  if (steps > 0) load_tile<KEY_STEP>(keys, k, a.k, 0, a.nk);
  commit_copies();
  negate_owned(queries, a.scale);

  float result[kDim / 2] = {}, s[kScores];
  unsigned p[KEY_STEP / 16][4] = {};
  RowState state = {{-1e30f, -1e30f}, {0, 0}, exponent_factor(a.scale, 0.0f)};
  const unsigned my_queries = queries + group * 64 * 128;
  for (int step = 0; step < steps; ++step) {
    const int slot = step & 1;
    wait_copies();
    fence_shared();
    __syncthreads();
    load_tile<KEY_STEP>(values + slot * kKeyTile, v, a.v, static_cast<i64>(step) * KEY_STEP, a.nk);
    if (step + 1 < steps) load_tile<KEY_STEP>(keys + (slot ^ 1) * kKeyTile, k, a.k, (step + 1ll) * KEY_STEP, a.nk);
    commit_copies();
    wgmma_fence();
    scores<kScores, kOwned, KEY_STEP>(s, my_queries, keys + slot * kKeyTile);
    wgmma_commit();
    if (step > 0) accumulate<KEY_STEP / 16, KEY_STEP>(result, p, values + (slot ^ 1) * kKeyTile);
    wgmma_commit();
    wgmma_wait<1>();
    const i64 key = static_cast<i64>(step) * KEY_STEP;
    if (key + KEY_STEP > a.nk || (CAUSAL && key + KEY_STEP > first + group * 64 + shift + 1)) {
#pragma unroll
      for (int j = 0; j < kScores; ++j) {
        const i64 column = key + j / 4 * 8 + 2 * t + j % 2;
        if (column >= a.nk || (CAUSAL && column > row + (j & 2) * 4 + shift)) s[j] = -__int_as_float(0x7f800000);
      }
    }
    float factor[2];
    advance(s, state, factor);
    wgmma_wait<0>();
    as_left(p, s);
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j) result[j] *= factor[j / 2 % 2];
  }
  wait_copies();
  fence_shared();
  __syncthreads();
  wgmma_fence();
  if (steps > 0) accumulate<KEY_STEP / 16, KEY_STEP>(result, p, values + (steps - 1 & 1) * kKeyTile);
  wgmma_commit();
  wgmma_wait<0>();

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(state.sum[half]);
    factor[half] = sum == 0 ? 0 : 1 / sum;
    if (t == 0 && row + 8 * half < a.nq) {
      if (a.lse) lse_of(a, batch, head, row + 8 * half) = sum == 0 ? -__int_as_float(0x7f800000) : state.shift[half] * float(kLn2) + logf(sum);
      if (Train) a.shift[(batch * a.heads + head) * a.nq + row + 8 * half] = sum == 0 ? 0 : state.shift[half] + log2f(sum);
    }
  }
  store_rows(a.out, head_of(a.out_data, a.out, batch, head), row, a.nq, result, factor[0], factor[1]);
  if constexpr (Train) {
    const Half* grad = head_of(a.grad_out_data, a.grad_out, batch, head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 r = row + 8 * half, vector = (batch * a.heads + head) * a.nq + r;
      float delta = 0;
      if (r < a.nq) {
#pragma unroll
        for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = 8 * j + 2 * t + e;
            if (d >= HEAD_DIM) continue;
            delta += unpack(grad[r * a.grad_out.n + d * a.grad_out.d]) * result[4 * j + 2 * half + e] * factor[half];
            a.scratch[vector * HEAD_DIM + d] = 0;
          }
        }
      }
      delta = quad_sum(delta);
      if (t == 0 && r < a.nq) a.delta[vector] = delta;
    }
  }
}

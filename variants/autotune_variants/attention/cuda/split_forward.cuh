// Online-softmax forward on split operands: two warpgroups own 64 queries each.
#pragma once
#include "split.cuh"

constexpr int kKeyTile = 2 * KEY_STEP * 128, kScores = KEY_STEP / 2;
constexpr int kForwardBytes = 2 * kOwned * 128 + 4 * kKeyTile;

struct RowState {
  float shift[2], sum[2];
};

// s becomes weights times 2^kTop; also the factors by which earlier sums and results shrink.
__device__ __forceinline__ void advance(float (&s)[kScores], RowState& state, float c, float (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float best = -__int_as_float(0x7f800000);
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) best = fmaxf(best, fmaxf(s[4 * j + 2 * half], s[4 * j + 2 * half + 1]));
    const float top = fmaxf(state.shift[half], quad_max(best) * c);
    factor[half] = exp2_fast(state.shift[half] - top);
    state.shift[half] = top;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * j + 2 * half + e];
        x = exp2_fast(fmaf(x, c, kTop - top));
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
  const Half *k = rows_of(a, kK, batch, kv_head), *v = rows_of(a, kV, batch, kv_head);
  const i64 plane = plane_of(a, kK);
  const unsigned queries = shared_address(shared), keys = queries + 2 * kOwned * 128, values = keys + 2 * kKeyTile;
  const int value_shift = shift_of(a, kV, batch, kv_head), grad_shift = Train ? shift_of(a, kG, batch, head) : 0;
  const float c = score_factor(a, shift_of(a, kQ, batch, head), shift_of(a, kK, batch, kv_head));

  load_tiles<kOwned>(queries, rows_of(a, kQ, batch, head), plane_of(a, kQ), first, a.nq);
  if (steps > 0) load_tiles<KEY_STEP>(keys, k, plane, 0, a.nk);
  commit_copies();

  float result[kDim / 2] = {}, part[kDim / 2] = {}, s[kScores], factor[2] = {1, 1};
  Split<KEY_STEP / 16> p = {};
  RowState state = {{-1e30f, -1e30f}, {0, 0}};
  const unsigned my_queries = queries + group * 64 * 128;
  for (int step = 0; step < steps; ++step) {
    const int slot = step & 1;
    wait_copies();
    fence_shared();
    __syncthreads();
    load_tiles<KEY_STEP>(values + slot * kKeyTile, v, plane, static_cast<i64>(step) * KEY_STEP, a.nk);
    if (step + 1 < steps) load_tiles<KEY_STEP>(keys + (slot ^ 1) * kKeyTile, k, plane, (step + 1ll) * KEY_STEP, a.nk);
    commit_copies();
    wgmma_fence();
    scores<true, kScores, kOwned, KEY_STEP>(s, my_queries, keys + slot * kKeyTile);
    wgmma_commit();
    if (step > 0) apply<KEY_STEP / 16, KEY_STEP>(part, p, values + (slot ^ 1) * kKeyTile);
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
    float next[2];
    advance(s, state, c, next);
    wgmma_wait<0>();
    // The last step's part still has the shift before this one; `factor` brought the older sums to it.
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j) result[j] = fmaf(result[j], factor[j / 2 % 2], part[j]);
    factor[0] = next[0], factor[1] = next[1];
    p.set(s);
  }
  wait_copies();
  fence_shared();
  __syncthreads();
  wgmma_fence();
  if (steps > 0) apply<KEY_STEP / 16, KEY_STEP>(part, p, values + (steps - 1 & 1) * kKeyTile);
  wgmma_commit();
  wgmma_wait<0>();

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(state.sum[half]);
    inverse[half] = sum == 0 ? 0 : 1 / sum;
    if (t == 0 && row + 8 * half < a.nq) {
      const i64 place = (batch * a.heads + head) * a.nq + row + 8 * half;
      const float lse = sum == 0 ? -__int_as_float(0x7f800000) : state.shift[half] * float(kLn2) + logf(sum * power(-kTop));
      if (a.lse) lse_of(a, batch, head, row + 8 * half) = lse;
      if (Train) a.shift[place] = sum == 0 ? 0 : state.shift[half], a.inverse[place] = sum == 0 ? 0 : power(kTop) / sum;
    }
  }
#pragma unroll
  for (int j = 0; j < kDim / 2; ++j) result[j] = fmaf(result[j], factor[j / 2 % 2], part[j]) * inverse[j / 2 % 2];
  store_rows(a.out, head_of(a.out_data, a.out, batch, head), row, a.nq, result, -value_shift);
  if constexpr (Train) {
    const float* grad = head_of(a.grad_out_data, a.grad_out, batch, head);
    float* gq = head_of(a.gq_data, a.gq, batch, head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 r = row + 8 * half;
      float delta = 0;
      if (r < a.nq) {
#pragma unroll
        for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int d = 8 * j + 2 * t + e;
            if (d >= HEAD_DIM) continue;
            delta += scaled(grad[r * a.grad_out.n + d * a.grad_out.d], grad_shift) * result[4 * j + 2 * half + e];
            gq[r * a.gq.n + d * a.gq.d] = 0;
          }
        }
      }
      delta = quad_sum(delta);
      if (t == 0 && r < a.nq) a.delta[(batch * a.heads + head) * a.nq + r] = delta;
    }
  }
}

// Backward in one sweep: a block owns 128 keys, streams the queries and adds GQ in float32 by atomics.
#pragma once
#include "half_forward.cuh"

constexpr int kQueryTile = QUERY_STEP * kDim * 2, kStage = 2 * kQueryTile + 1024;
constexpr int kBackwardBytes = 2 * kOwned * kDim * 2 + 2 * kStage + kOwned * QUERY_STEP * 2;
static_assert(QUERY_STEP == 64, "one swizzled block of queries");

struct Cursor {
  i64 head, query;
};

// Gradients of scores may leave float16's range: they are multiplied by a power of two, from the largest rows of grad_out
// and v, that brings the largest possible one under 2^15. bfloat16 has float32's range.
__device__ __forceinline__ float fitting_factor(const Args& a, i64 batch, i64 kv_head) {
#if HALF_FLOAT16
  const i64 per_group = a.heads / a.kv_heads;
  const float* grads = a.measures + (batch * a.heads + kv_head * per_group) * kParts;
  const float* values = a.measures + (a.batch * a.heads + batch * a.kv_heads + kv_head) * kParts;
  float grad = 0, value = 0;
  for (int i = 0; i < per_group * kParts; ++i) grad = fmaxf(grad, grads[i]);
  for (int i = 0; i < kParts; ++i) value = fmaxf(value, values[i]);
  // |grad_out V^T - delta| is at most twice the product of the norms
  const float bound = 2 * sqrtf(grad) * sqrtf(value);
  return bound > 0 && bound < 1e30f ? exp2f(14 - ilogbf(bound)) : 1;
#else
  return 1;
#endif
}

// GQ of the step's queries and this warpgroup's half of the columns: GS lies across (rows are keys), keys likewise.
__device__ __forceinline__ void step_gq(float (&sum)[kDim / 4], unsigned weights, unsigned keys) {
#pragma unroll
  for (int k = 0; k < kOwned / 16; ++k)
    product<true, true>(sum, descriptor(weights + k * 2048, kOwned * 128), descriptor(keys + k * 2048, kOwned * 128), k > 0);
}

__device__ __forceinline__ void add_gq(float* to, i64 row, i64 limit, int column, const float (&sum)[kDim / 4],
                                       float factor) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= limit) continue;
    float* line = to + (row + 8 * half) * HEAD_DIM;
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j) {
      const int d = column + 8 * j + 2 * t;
      const float first = sum[4 * j + 2 * half] * factor, second = sum[4 * j + 2 * half + 1] * factor;
      if (HEAD_DIM % 2 == 0) {
        if (d < HEAD_DIM)
          asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(line + d), "f"(first), "f"(second)
                       : "memory");
      } else {
        if (d < HEAD_DIM) atomicAdd(line + d, first);
        if (d + 1 < HEAD_DIM) atomicAdd(line + d + 1, second);
      }
    }
  }
}

__device__ __forceinline__ void column_pass(const Args& a, i64 item, char* shared) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const i64 tiles = (a.nk + kOwned - 1) / kOwned, first = item % tiles * kOwned, offset = a.nk - a.nq;
  const i64 kv_head = item / tiles % a.kv_heads, batch = item / tiles / a.kv_heads, per_group = a.heads / a.kv_heads;
  const i64 key = first + group * 64 + warp * 16 + g;
  const i64 start = CAUSAL ? max(first - offset, 0ll) / QUERY_STEP * QUERY_STEP : 0;
  const int steps = static_cast<int>(start < a.nq ? (a.nq - start + QUERY_STEP - 1) / QUERY_STEP * per_group : 0);
  const float c = exponent_factor(a.scale, 0.0f);  // the keys in shared memory have the scale's sign
  const unsigned keys = shared_address(shared), values = keys + kOwned * kDim * 2, ring = values + kOwned * kDim * 2;
  const unsigned weights = ring + 2 * kStage, block = group * 64 * 128;

  load_tile<kOwned>(keys, head_of(a.k_data, a.k, batch, kv_head), a.k, first, a.nk);
  load_tile<kOwned>(values, head_of(a.v_data, a.v, batch, kv_head), a.v, first, a.nk);
  Cursor now{kv_head * per_group, start}, next = now;
  const auto move = [&](Cursor& cursor) {
    cursor.query += QUERY_STEP;
    if (cursor.query >= a.nq) cursor.query = start, ++cursor.head;
  };
  const auto fetch = [&](int slot) {
    const unsigned tile = ring + slot * kStage;
    load_tile<QUERY_STEP>(tile, head_of(a.q_data, a.q, batch, next.head), a.q, next.query, a.nq);
    load_tile<QUERY_STEP>(tile + kQueryTile, head_of(a.grad_out_data, a.grad_out, batch, next.head), a.grad_out, next.query, a.nq);
    const i64 vector = (batch * a.heads + next.head) * a.nq;
    load_vector<QUERY_STEP>(tile + 2 * kQueryTile, a.shift + vector, next.query, a.nq);
    load_vector<QUERY_STEP>(tile + 2 * kQueryTile + QUERY_STEP * 4, a.delta + vector, next.query, a.nq);
    move(next);
  };
  if (steps) fetch(0);
  commit_copies();
  negate_owned(keys, a.scale);
  const float fit = fitting_factor(a, batch, kv_head);

  float gk[kDim / 2] = {}, gv[kDim / 2] = {};
  for (int step = 0; step < steps; ++step, move(now)) {
    wait_copies();
    fence_shared();
    __syncthreads();
    if (step + 1 < steps) fetch(step + 1 & 1);
    commit_copies();
    const unsigned queries = ring + (step & 1) * kStage, grads = queries + kQueryTile;
    const char* vectors = shared + (queries + 2 * kQueryTile - keys);

    float s[QUERY_STEP / 2], ds[QUERY_STEP / 2];  // transposed: rows are keys
    wgmma_fence();
    scores<QUERY_STEP / 2, kOwned, QUERY_STEP>(s, keys + block, queries);
    wgmma_commit();
    scores<QUERY_STEP / 2, kOwned, QUERY_STEP>(ds, values + block, grads);
    wgmma_commit();
    wgmma_wait<1>();
    // queries past the end are zeros: not so their scores with an infinite key
    const bool masked = first + kOwned > a.nk || now.query + QUERY_STEP > a.nq || (CAUSAL && first + kOwned - 1 > now.query + offset);
#pragma unroll
    for (int j = 0; j < QUERY_STEP / 8; ++j) {
      const float2 shift = *reinterpret_cast<const float2*>(vectors + (8 * j + 2 * t) * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& x = s[4 * j + e];
        x = exp2_fast(fmaf(x, c, -(e & 1 ? shift.y : shift.x)));
      }
    }
    if (masked) {  // in a loop of its own, so that it is jumped over and not computed for nothing
      const int columns = static_cast<int>(min(a.nk - key, i64(kOwned)));
      const int rows = static_cast<int>(min(a.nq - now.query, i64(QUERY_STEP))) - 2 * t;
      const int ahead = static_cast<int>(max(min(key - now.query - offset, i64(QUERY_STEP)), i64(-kOwned))) - 2 * t;
#pragma unroll
      for (int j = 0; j < QUERY_STEP / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 8 * j + (e & 1), column = 8 * (e >> 1);
          if (column >= columns || row >= rows || (CAUSAL && ahead + column > row)) s[4 * j + e] = 0;
        }
      }
    }
    unsigned p[QUERY_STEP / 16][4];
    as_left(p, s);
    wgmma_fence();
    accumulate<QUERY_STEP / 16, QUERY_STEP>(gv, p, grads);
    wgmma_commit();
    wgmma_wait<1>();
#pragma unroll
    for (int j = 0; j < QUERY_STEP / 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(vectors + (QUERY_STEP + 8 * j + 2 * t) * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[4 * j + e] = s[4 * j + e] * (ds[4 * j + e] - (e & 1 ? delta.y : delta.x)) * fit;
    }
    unsigned q[QUERY_STEP / 16][4];
    as_left(q, ds);
#pragma unroll
    for (int j = 0; j < QUERY_STEP / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int line = group * 64 + warp * 16 + g + 8 * half;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(weights + line * 128 + ((j ^ (line & 7)) << 4) + 4 * t), "r"(q[j / 2][j % 2 * 2 + half])
                     : "memory");
      }
    }
    fence_shared();
    __syncthreads();
    float gq[kDim / 4];
    wgmma_fence();
    step_gq(gq, weights, keys + (kDim == 128 ? group * kOwned * 128 : group * 64));
    wgmma_commit();
    accumulate<QUERY_STEP / 16, QUERY_STEP>(gk, q, queries);
    wgmma_commit();
    wgmma_wait<1>();
    add_gq(a.scratch + (batch * a.heads + now.head) * a.nq * HEAD_DIM, now.query + warp * 16 + g, a.nq, group * kDim / 2, gq, 1 / fit);
    wgmma_wait<0>();
  }
  wait_copies();
  const float scale = static_cast<float>(a.scale) / fit;
  store_rows(a.gk, head_of(a.gk_data, a.gk, batch, kv_head), key, a.nk, gk, scale, scale);
  store_rows(a.gv, head_of(a.gv_data, a.gv, batch, kv_head), key, a.nk, gv, 1, 1);
}

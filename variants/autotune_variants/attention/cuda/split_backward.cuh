// Backward in one sweep on split operands: a block owns 128 keys, streams the queries and adds GQ by atomics.
#pragma once
#include "split_forward.cuh"

constexpr int kTiles = 2 * kQueries * 128, kStage = 2 * kTiles + 1024, kWeightTile = kOwned * kQueries * 2;
constexpr int kBackwardBytes = 4 * kOwned * 128 + 2 * kStage + 2 * kWeightTile;

// GQ of the step's queries and 32 of the columns: GS and the keys lie across (their rows are keys).
__device__ __forceinline__ void step_gq(float (&sum)[16], unsigned weights, unsigned keys) {
#pragma unroll
  for (int part = 0; part < 3; ++part) {
#pragma unroll
    for (int k = 0; k < kOwned / 16; ++k)
      product<true, true>(sum, descriptor(weights + (part == 0 ? kWeightTile : 0) + k * 2048, kOwned * 128),
                          descriptor(keys + (part == 1 ? kOwned * 128 : 0) + k * 2048, kOwned * 128), part + k > 0);
  }
}

__device__ __forceinline__ void add_gq(const Strides& x, float* head, i64 row, i64 limit, int column, const float (&sum)[16], float factor) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= limit) continue;
    float* line = head + (row + 8 * half) * x.n;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int d = column + 8 * j + 2 * (threadIdx.x % 4);
      const float first = sum[4 * j + 2 * half] * factor, second = sum[4 * j + 2 * half + 1] * factor;
      if (VECTOR_GQ && HEAD_DIM % 2 == 0) {
        if (d < HEAD_DIM) asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(line + d), "f"(first), "f"(second) : "memory");
      } else {
        if (d < HEAD_DIM) atomicAdd(line + d * x.d, first);
        if (d + 1 < HEAD_DIM) atomicAdd(line + (d + 1) * x.d, second);
      }
    }
  }
}

// The factors of one query head's step.
struct Scales {
  float score, gradient;
  Factor value, key, query;
};

__device__ __forceinline__ Scales scales_of(const Args& a, i64 batch, i64 head, const Range& key, const Range& value) {
  const Range grad = range_of(a, kG, batch, head);
  const int query_shift = shift_of(a, kQ, batch, head);
  // |grad_out V^T - delta| is below 2^(norms + 1) when scaled; the shift below brings the gradients of the scores under 2^15.
  const int down = grad.norm + value.norm + 1 - 15, back = down - grad.shift - value.shift;
  return {score_factor(a, query_shift, key.shift), power(-down - kTop), factor_of(two_to(-kTop - grad.shift)),
          factor_of(fabs(a.scale) * two_to(back - query_shift)),  // the queries have the scale's sign
          factor_of(a.scale * two_to(back - key.shift))};
}

__device__ __forceinline__ void column_pass(const Args& a, i64 item, char* shared) {
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const i64 tiles = (a.nk + kOwned - 1) / kOwned, first = item % tiles * kOwned, shift = a.nk - a.nq;
  const i64 kv_head = item / tiles % a.kv_heads, batch = item / tiles / a.kv_heads, per_group = a.heads / a.kv_heads;
  const i64 key = first + group * 64 + warp * 16 + g, plane = plane_of(a, kQ);
  const i64 start = CAUSAL ? max(first - shift, 0ll) / kQueries * kQueries : 0;
  const int steps = static_cast<int>(start < a.nq ? (a.nq - start + kQueries - 1) / kQueries * per_group : 0);
  const unsigned keys = shared_address(shared), values = keys + 2 * kOwned * 128, ring = values + 2 * kOwned * 128;
  const unsigned weights = ring + 2 * kStage, block = group * 64 * 128;
  const Range key_range = range_of(a, kK, batch, kv_head), value_range = range_of(a, kV, batch, kv_head);

  load_tiles<kOwned>(keys, rows_of(a, kK, batch, kv_head), plane_of(a, kK), first, a.nk);
  load_tiles<kOwned>(values, rows_of(a, kV, batch, kv_head), plane_of(a, kV), first, a.nk);
  i64 next_head = kv_head * per_group, next_query = start, head = next_head, query = start;
  const auto move = [&](i64& h, i64& q) {
    q += kQueries;
    if (q >= a.nq) q = start, ++h;
  };
  const auto fetch = [&](int slot) {
    const unsigned tile = ring + slot * kStage;
    load_tiles<kQueries>(tile, rows_of(a, kQ, batch, next_head), plane, next_query, a.nq);
    load_tiles<kQueries>(tile + kTiles, rows_of(a, kG, batch, next_head), plane, next_query, a.nq);
    const i64 vector = (batch * a.heads + next_head) * a.nq;
    load_vector<kQueries>(tile + 2 * kTiles, a.shift + vector, next_query, a.nq);
    load_vector<kQueries>(tile + 2 * kTiles + kQueries * 4, a.inverse + vector, next_query, a.nq);
    load_vector<kQueries>(tile + 2 * kTiles + kQueries * 8, a.delta + vector, next_query, a.nq);
    move(next_head, next_query);
  };
  if (steps) fetch(0);
  commit_copies();

  float gk[kDim / 2] = {}, gv[kDim / 2] = {};
  Scales scales = {};
  for (int step = 0; step < steps; ++step, move(head, query)) {
    if (query == start) scales = scales_of(a, batch, head, key_range, value_range);
    wait_copies();
    fence_shared();
    __syncthreads();
    if (step + 1 < steps) fetch(step + 1 & 1);
    commit_copies();
    const unsigned queries = ring + (step & 1) * kStage, grads = queries + kTiles;
    const char* vectors = shared + (queries + 2 * kTiles - keys);

    float s[kQueries / 2], ds[kQueries / 2];  // transposed: rows are keys
    wgmma_fence();
    scores<false, kQueries / 2, kOwned, kQueries>(s, keys + block, queries);
    wgmma_commit();
    scores<false, kQueries / 2, kOwned, kQueries>(ds, values + block, grads);
    wgmma_commit();
    wgmma_wait<1>();
    const bool masked = first + kOwned > a.nk || (CAUSAL && first + kOwned - 1 > query + shift);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      const float2 top = *reinterpret_cast<const float2*>(vectors + (8 * j + 2 * t) * 4);
      float2 inverse = *reinterpret_cast<const float2*>(vectors + (kQueries + 8 * j + 2 * t) * 4);
      inverse.x *= 1 << kTop, inverse.y *= 1 << kTop;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& x = s[4 * j + e];
        x = exp2_fast(fmaf(x, scales.score, -(e & 1 ? top.y : top.x))) * (e & 1 ? inverse.y : inverse.x);
        if (masked) {
          const i64 row = query + 8 * j + 2 * t + (e & 1), column = key + 8 * (e >> 1);
          if (column >= a.nk || (CAUSAL && column > row + shift)) x = 0;
        }
      }
    }
    Split<kQueries / 16> p;
    p.set(s);
    float part[kDim / 2];
    wgmma_fence();
    apply<kQueries / 16, kQueries>(part, p, grads);
    wgmma_commit();
    wgmma_wait<1>();
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(vectors + (2 * kQueries + 8 * j + 2 * t) * 4);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        // P (ga - delta), scaled down into float16's range and by the 2^kTop that s carries
        ds[4 * j + e] = s[4 * j + e] * fmaf(ds[4 * j + e], scales.gradient, (e & 1 ? delta.y : delta.x) * -scales.gradient);
      }
    }
    Split<kQueries / 16> q;
    q.set(ds);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int line = group * 64 + warp * 16 + g + 8 * half;
        const unsigned place = weights + line * 128 + ((j ^ (line & 7)) << 4) + 4 * t;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(place), "r"(q.high[j / 2][j % 2 * 2 + half]) : "memory");
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(place + kWeightTile), "r"(q.low[j / 2][j % 2 * 2 + half]) : "memory");
      }
    }
    wgmma_wait<0>();
    apply_rest(part, scales.value);
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j) gv[j] = fmaf(part[j], scales.value.near, gv[j]);
    fence_shared();
    __syncthreads();
    float gq[16];
    wgmma_fence();
    step_gq(gq, weights, keys + group * 64);
    wgmma_commit();
    apply<kQueries / 16, kQueries>(part, q, queries);
    wgmma_commit();
    wgmma_wait<1>();
    apply_rest(gq, scales.query);
    add_gq(a.gq, head_of(a.gq_data, a.gq, batch, head), query + warp * 16 + g, a.nq, group * 32, gq, scales.query.near);
    wgmma_wait<0>();
    apply_rest(part, scales.key);
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j) gk[j] = fmaf(part[j], scales.key.near, gk[j]);
  }
  wait_copies();
  store_rows(a.gk, head_of(a.gk_data, a.gk, batch, kv_head), key, a.nk, gk, 0);
  store_rows(a.gv, head_of(a.gv_data, a.gv, batch, kv_head), key, a.nk, gv, 0);
}

// Backward over rows: a block owns kBlock queries, streams the keys, and sums GQ.
#pragma once
#include "tiled_forward.cuh"

constexpr int kRowTable = 2 * kBlock * kPitch + SPLIT_WARPS * kRing;
constexpr int kRowShared = larger_of(kRowTable + kTableBytes, kMergeBytes);

__device__ __forceinline__ void row_pass(const Args& a, i64 item, char* shared) {
  const RowTask task(a, item);
  const Lane lane;
  const int warp = threadIdx.x / 32, row_warp = warp % ROW_WARPS, split = warp / ROW_WARPS;
  const unsigned queries = shared_address(shared), grads = queries + kBlock * kPitch;
  const unsigned ring = grads + kBlock * kPitch + split * kRing;
  const Data* k = head_of(a.k_data, a.k, task.batch, task.kv_head);
  const Data* v = head_of(a.v_data, a.v, task.batch, task.kv_head);
  const Real c = exponent_factor(a.scale, Real());
  const int steps = static_cast<int>((task.keys + STEP - 1) / STEP);
  const i64 row = task.first + row_warp * 16 + lane.g;

  BlockCopy(queries, head_of(a.q_data, a.q, task.batch, task.head), a.q.n, a.q.d, task.first, a.nq).all();
  BlockCopy(grads, head_of(a.grad_out_data, a.grad_out, task.batch, task.head), a.grad_out.n, a.grad_out.d, task.first, a.nq).all();
  const auto keys_of = [&](int step) {
    return ShareCopy(ring + slot_of(step) * 2 * kShare * kPitch, k, a.k.n, a.k.d, step * STEP + split * kShare, task.keys);
  };
  const auto values_of = [&](int step) {
    return ShareCopy(ring + (slot_of(step) * 2 + 1) * kShare * kPitch, v, a.v.n, a.v.d, step * STEP + split * kShare, task.keys);
  };
  if (STAGES > 1) keys_of(0).all(), values_of(0).all();
  commit_copies();
  const unsigned table = queries + kRowTable;
  if (!kStoreWeights) fill_table(table);
  wait_for_previous();

  Real bias[2], inverse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool inside = row + 8 * half < a.nq;
    bias[half] = bias_of(inside ? a.shift[task.vector + row + 8 * half] : Real(0));
    inverse[half] = inside ? a.inverse[task.vector + row + 8 * half] : 0;
    delta[half] = inside ? -a.delta[task.vector + row + 8 * half] : 0;
  }
  wait_copies();
  __syncthreads();
  negate_owned(queries, a.scale);

  Real gq[2 * kGroups][4] = {}, p[kTiles][4];
  MovedSums<Real> moved;
  if (STORED && steps) load_scores(a, p, task.vector, row, split * kShare, lane);
  for (int step = 0; step < steps; ++step) {
    moved.before(step, gq);
    if (STAGES == 1) {
      sync_group();
      keys_of(step).all(), values_of(step).all();
      commit_copies();
    }
    wait_copies();
    sync_group();
    const unsigned tile = ring + slot_of(step) * 2 * kShare * kPitch;
    if (STAGES > 1) {
      keys_of(step + 1).all(), values_of(step + 1).all();
      commit_copies();
    }
    Real s[kTiles][4];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = delta[e >> 1];
    }
    const unsigned query_rows = queries + row_warp * 16 * kPitch + lane.along, grad_rows = query_rows + kBlock * kPitch;
    if constexpr (!STORED) clear(p), scores(p, [&](int i) { return left_along(query_rows, i * kAlong * kStored); }, tile + lane.right);
    scores(s, [&](int i) { return left_along(grad_rows, i * kAlong * kStored); }, tile + kShare * kPitch + lane.right);
    const int key = step * STEP + split * kShare;
    const bool masked = key + kShare > task.keys || (CAUSAL && key + kShare > task.first + a.nk - a.nq + 1);
    if constexpr (!kStoreWeights) weigh(p, c, table, [&](int, int e) { return bias[e >> 1]; });
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (masked) {
          const i64 column = key + j * 8 + 2 * lane.t + (e & 1);
          if (column >= task.keys || (CAUSAL && column > row + 8 * (e >> 1) + a.nk - a.nq)) p[j][e] = 0;
        }
        s[j][e] = p[j][e] * inverse[e >> 1] * (kRounds ? s[j][e] : s[j][e] + delta[e >> 1]);
      }
    }
    if (STORED && step + 1 < steps) load_scores(a, p, task.vector, row, key + STEP, lane);
    accumulate(gq, s, tile + task.chunk * kChunk * kStored + lane.across);
  }
  moved.join(gq);
  wait_copies();
  __syncthreads();
  add_splits(gq, reinterpret_cast<Real*>(shared), row_warp, split);
  if (split == 0) {
    Data* head = head_of(a.gq_data, a.gq, task.batch, task.head);
    // of 16-bit tensors the rounding of s to TF32 loses NaN: what all of a row's s are made of brings it back
    const auto factor = [&](int half) { return STORAGE ? fma(inverse[half] + delta[half], Real(0), Real(a.scale)) : Real(a.scale); };
    store_rows(a.gq, head, task.first + row_warp * 16, a.nq, task.chunk, lane, gq, factor(0), factor(1));
  }
}

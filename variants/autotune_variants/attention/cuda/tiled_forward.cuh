// Online-softmax forward: a block owns kBlock queries and streams the keys; warps of one row group split each step.
#pragma once
#include "tiled_products.cuh"

constexpr int kRing = STAGES * 2 * kShare * kPitch;  // a group's tiles of keys and values
constexpr int kForwardTable = kBlock * kPitch + SPLIT_WARPS * kRing;  // where the table of powers lies
constexpr int kForwardMerge = ((SPLIT_WARPS - 1) * 16 * kChunk + SPLIT_WARPS * 32) * ROW_WARPS * kSize;
constexpr int kForwardShared = larger_of(kForwardTable + kTableBytes, kForwardMerge);

__device__ __forceinline__ int slot_of(int step) { return STAGES > 1 ? step & 1 : 0; }

struct RowState {
  Real shift[2], sum[2];
};

// Moves the shifts of a warp's rows up to this step's largest scores, and the sums and results with them; `factor` is what the
// weights so far are to be multiplied by.
__device__ __forceinline__ void move_shift(const Real (&s)[kTiles][4], RowState& state, Real (&result)[2 * kGroups][4],
                                           MovedSums<Real>& moved, Real c, Real (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Real top = larger(s[0][2 * half], s[0][2 * half + 1]);
#pragma unroll
    for (int j = 1; j < kTiles; ++j) top = larger(larger(s[j][2 * half], s[j][2 * half + 1]), top);
    const Real before = state.shift[half], wanted = shift_of(quad_max(top), c);
    const Real shift = needless(wanted, before) ? 0 : larger(wanted, before);
    factor[half] = exp2_of(before - shift);
    state.sum[half] *= factor[half];
    moved.scale(half, factor[half]);
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) result[n][2 * half] *= factor[half], result[n][2 * half + 1] *= factor[half];
    state.shift[half] = shift;
  }
}

// One step of the online softmax: s becomes the weights of this step. `rescale(factors of both rows)` where
// weights have shrunk.
template <typename Rescale>
__device__ __forceinline__ void advance(Real (&s)[kTiles][4], RowState& state, Real (&result)[2 * kGroups][4],
                                        MovedSums<Real>& moved, Real c, unsigned table, const Rescale& rescale) {
  Real bias[2] = {bias_of(state.shift[0]), bias_of(state.shift[1])};
  bool move = false;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) move |= outgrown(s[j][e], c, bias[e >> 1]);
  }
  if (__any_sync(~0u, move)) {
    Real factor[2];
    move_shift(s, state, result, moved, c, factor);
    // A row of NaN moves nothing, and one of +inf has nothing but NaN in its results: neither rewrites what is stored.
    if (__any_sync(~0u, factor[0] < 1 || factor[1] < 1)) rescale(factor);
    bias[0] = bias_of(state.shift[0]), bias[1] = bias_of(state.shift[1]);
  }
  weigh(s, c, table, [&](int, int e) { return bias[e >> 1]; });
  Real sum[2] = {s[0][0] + s[0][1], s[0][2] + s[0][3]};
#pragma unroll
  for (int j = 1; j < kTiles; ++j) sum[0] += s[j][0] + s[j][1], sum[1] += s[j][2] + s[j][3];
  state.sum[0] += sum[0], state.sum[1] += sum[1];
}

// Multiplies the weights that this lane has stored in its first `steps` steps.
__device__ __forceinline__ void scale_stored(const Args& a, i64 vector, i64 row, i64 key, int steps, const Lane& lane,
                                             const Real (&factor)[2]) {
#pragma unroll 1
  for (int step = 0; step < steps; ++step, key += STEP) {
    Real p[kTiles][4];
    load_scores(a, p, vector, row, key, lane);
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) p[i / 4][i % 4] *= factor[i % 4 / 2];
    store_scores(a, p, vector, row, key, lane);
  }
}

// Joins the states of the warps that split a row group; after it the first of them holds the whole rows. `factor` is what
// this warp's weights had to be multiplied by.
__device__ __forceinline__ void merge_states(RowState& state, Real (&result)[2 * kGroups][4], Real* space, int row_warp,
                                             int split, const Lane& lane, Real (&factor)[2]) {
  factor[0] = factor[1] = 1;
  if constexpr (SPLIT_WARPS == 1) return;
  Real* states = space + (SPLIT_WARPS - 1) * ROW_WARPS * 16 * kChunk;
  Real* mine = states + (split * ROW_WARPS + row_warp) * 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (lane.t == 0) mine[lane.g + 8 * half] = state.shift[half], mine[16 + lane.g + 8 * half] = state.sum[half];
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Real shift = state.shift[half], sum = 0;
    for (int i = 0; i < SPLIT_WARPS; ++i) shift = larger(states[(i * ROW_WARPS + row_warp) * 32 + lane.g + 8 * half], shift);
    for (int i = 0; i < SPLIT_WARPS; ++i) {
      const Real* other = states + (i * ROW_WARPS + row_warp) * 32 + lane.g + 8 * half;
      sum += other[16] * exp2_of(other[0] - shift);
    }
    factor[half] = state.sum[half] == 0 ? 1 : exp2_of(state.shift[half] - shift);
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) result[n][2 * half] *= factor[half], result[n][2 * half + 1] *= factor[half];
    state.shift[half] = shift, state.sum[half] = sum;
  }
  add_splits(result, space, row_warp, split);
}

// With Train also shift and inverse, and where a block holds whole rows (kChunks == 1) delta = sum of grad_out * out, and
// zeros in gq for the atomics to come.
template <bool Train>
__device__ __forceinline__ void finish_forward(const Args& a, const RowTask& task, const Lane& lane, int row_warp,
                                               const RowState& state, const Real (&result)[2 * kGroups][4], Real c) {
  Real factor[2], delta[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 row = task.first + row_warp * 16 + lane.g + 8 * half;
    factor[half] = state.sum[half] == 0 ? 0 : 1 / state.sum[half];
    if (row < a.nq && lane.t == 0 && task.chunk == 0) {
      const Real lse = state.sum[half] == 0 ? -infinity(Real()) : state.shift[half] * Real(kLn2) + log_of(state.sum[half]);
      if (a.lse) lse_of(a, task.batch, task.head, row) = lse;
      if (Train) a.shift[task.vector + row] = state.sum[half] == 0 ? 0 : state.shift[half], a.inverse[task.vector + row] = factor[half];
    }
  }
  Data* out = head_of(a.out_data, a.out, task.batch, task.head);
  store_rows(a.out, out, task.first + row_warp * 16, a.nq, task.chunk, lane, result, factor[0], factor[1]);
  if constexpr (Train && kChunks == 1) {
    const Data* grad = head_of(a.grad_out_data, a.grad_out, task.batch, task.head);
    Data* gq = head_of(a.gq_data, a.gq, task.batch, task.head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 row = task.first + row_warp * 16 + lane.g + 8 * half;
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int d = task.chunk * kChunk + n * 16 + lane.t * 4 + e;
          if (d >= HEAD_DIM || row >= a.nq) continue;
          delta[half] += read(grad + row * a.grad_out.n + d * a.grad_out.d) * (COLUMN_OF(result, n, half, e) * factor[half]);
          if (ATOMIC_GQ) gq[row * a.gq.n + d * a.gq.d] = 0;
        }
      }
      delta[half] = quad_sum(delta[half]);
      if (lane.t == 0 && row < a.nq) a.delta[task.vector + row] = delta[half];
    }
  }
}

template <bool Train>
__device__ __forceinline__ void forward_rows(const Args& a, i64 item, char* shared) {
  const RowTask task(a, item);
  const Lane lane;
  const int warp = threadIdx.x / 32, row_warp = warp % ROW_WARPS, split = warp / ROW_WARPS;
  const unsigned queries = shared_address(shared), ring = queries + kBlock * kPitch + split * kRing;
  const Data* k = head_of(a.k_data, a.k, task.batch, task.kv_head);
  const Data* v = head_of(a.v_data, a.v, task.batch, task.kv_head);
  const Real c = exponent_factor(a.scale, Real());
  const int steps = static_cast<int>((task.keys + STEP - 1) / STEP);

  const auto keys_of = [&](int step) {
    return ShareCopy(ring + slot_of(step) * 2 * kShare * kPitch, k, a.k.n, a.k.d, step * STEP + split * kShare, task.keys);
  };
  const auto values_of = [&](int step) {
    return ShareCopy(ring + (slot_of(step) * 2 + 1) * kShare * kPitch, v, a.v.n, a.v.d, step * STEP + split * kShare, task.keys);
  };
  BlockCopy(queries, head_of(a.q_data, a.q, task.batch, task.head), a.q.n, a.q.d, task.first, a.nq).all();
  if (STAGES > 1) keys_of(0).all(), values_of(0).all();
  commit_copies();
  const unsigned table = queries + kForwardTable;
  fill_table(table);

  Real result[2 * kGroups][4] = {};
  MovedSums<Real> moved;
  const unsigned left = queries + row_warp * 16 * kPitch + lane.along;
  OperandA held[HOLD_QUERIES ? kDepth : 1] = {};
  const auto query = [&](int i) { return HOLD_QUERIES ? held[i % (HOLD_QUERIES ? kDepth : 1)] : left_along(left, i * kAlong * kStored); };
  RowState state;
  state.shift[0] = state.shift[1] = kNoShift;
  state.sum[0] = state.sum[1] = 0;
  wait_copies();
  __syncthreads();
  negate_owned(queries, a.scale);
  if (HOLD_QUERIES) {
#pragma unroll
    for (int i = 0; i < kDepth; ++i) held[i % (HOLD_QUERIES ? kDepth : 1)] = left_along(left, i * kAlong * kStored);
  }
  for (int step = 0; step < steps; ++step) {
    moved.before(step, result);
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
    Real s[kTiles][4] = {};
    scores(s, query, tile + lane.right);
    const i64 key = step * STEP + split * kShare, row = task.first + row_warp * 16 + lane.g;
    if (Train && kStoreScores) store_scores(a, s, task.vector, row, key, lane);
    if (key + kShare > task.keys || (CAUSAL && key + kShare > task.first + a.nk - a.nq + 1)) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const i64 column = key + j * 8 + 2 * lane.t + (e & 1);
          const bool seen = column < task.keys && (!CAUSAL || column <= row + 8 * (e >> 1) + a.nk - a.nq);
          if (!seen) s[j][e] = -infinity(Real());
        }
      }
    }
    advance(s, state, result, moved, c, table, [&](const Real (&factor)[2]) {
      if (Train && kStoreWeights) scale_stored(a, task.vector, row, split * kShare, step, lane, factor);
    });
    if (Train && kStoreWeights) store_scores(a, s, task.vector, row, key, lane);
    accumulate(result, s, tile + kShare * kPitch + task.chunk * kChunk * kStored + lane.across);
  }
  if (Train) let_next_start();
  moved.join(result);
  wait_copies();
  __syncthreads();
  state.sum[0] = quad_sum(state.sum[0]), state.sum[1] = quad_sum(state.sum[1]);
  Real factor[2];
  merge_states(state, result, reinterpret_cast<Real*>(shared), row_warp, split, lane, factor);
  if constexpr (Train && kStoreWeights) {
    const i64 row = task.first + row_warp * 16 + lane.g;
    if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1))
      scale_stored(a, task.vector, row, split * kShare, steps, lane, factor);
  }
  if (split == 0) finish_forward<Train>(a, task, lane, row_warp, state, result, c);
}

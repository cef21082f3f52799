// Row passes: a block takes ROWS query rows of a head and sweeps their keys, one key a thread or one feature a thread.
#pragma once
#include "arrangements_base.cuh"

struct RowTile {
  i64 batch, head, kv_head, first, flat, keys;  // keys: of the row that attends most
  int count;

  __device__ RowTile(const Args& a, i64 item) {
    const i64 tiles = (a.nq + ROWS - 1) / ROWS, pair = item / tiles;
    batch = pair / a.heads;
    head = pair % a.heads;
    kv_head = head / (a.heads / a.kv_heads);
    first = item % tiles * ROWS;
    count = static_cast<int>(min(static_cast<i64>(ROWS), a.nq - first));
    flat = pair * a.nq + first;
    keys = attended(a, first + count - 1);
  }

  __device__ __forceinline__ bool has(int r) const { return ROWS == 1 || r < count; }
};

struct RowShared {
  alignas(16) Real row[ROWS][(kWidth + 1) / 2 * 2 + 2];
  Real parts[BLOCK], warps[BLOCK / 32];
};

template <int Dim>
__device__ void load_rows(const Tensor& x, const RowTile& t, RowShared& s) {
  __syncthreads();
  const Data* from = x.head(t.batch, t.head, t.first);
  for_elements<Dim>(ROWS, [&](i64 r, int d) { s.row[r][d] = r < t.count ? load(from + r * x.n + d * x.d) : Real(0); });
  __syncthreads();
}

// to[r, ic] = factor * <s.row[r], x[ic]>
template <int Dim>
__device__ void dot_keys(const Args& a, const Tensor& x, const RowTile& t, const RowShared& s, Real factor, Real* to) {
  const Data* from = x.head(t.batch, t.kv_head, 0);
  for (i64 ic = threadIdx.x; ic < t.keys; ic += BLOCK) {
    Real sum[ROWS] = {};
    const Data* key = from + ic * x.n;
#pragma unroll 8
    for (int d = 0; d < Dim; ++d) {
      const Real value = load(key + d * x.d);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] += s.row[r][d] * value;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (t.has(r)) to[r * a.nk + ic] = sum[r] * factor;
  }
}

// The rows' weights: softmax of their scores, 0 where a row of the tile attends less than another.
__device__ void softmax_rows(const Args& a, const RowTile& t, RowShared& s, Real* weights) {
  const Real infinity = __int_as_float(0x7f800000);
  load_rows<HEAD_DIM>(a.q, t, s);
  dot_keys<HEAD_DIM>(a, a.k, t, s, Real(a.scale), weights);
  for (int r = 0; r < t.count; ++r, weights += a.nk) {
    const i64 keys = attended(a, t.first + r);
    Real top = -infinity, sum = 0;
    for (i64 ic = threadIdx.x; ic < keys; ic += BLOCK) top = weights[ic] > top ? weights[ic] : top;
    top = block_max(top, s.warps);
    if (!(top > -infinity)) top = 0;  // weights of 0, as in a row with nothing to attend
    for (i64 ic = threadIdx.x; ic < keys; ic += BLOCK) sum += weights[ic] = exp(weights[ic] - top);
    sum = block_sum(sum, s.warps);
    const Real total = sum == 0 ? 1 : sum;
    for (i64 ic = threadIdx.x; ic < t.keys; ic += BLOCK) weights[ic] = ic < keys ? weights[ic] / total : Real(0);
    if ((STEPS & LSE) && threadIdx.x == 0) *a.lse.head(t.batch, t.head, t.first + r) = sum == 0 ? -infinity : top + log(sum);
  }
}

// to[r, d] = sum over ic of weights[r, ic] * x[ic, d]
template <int Dim>
__device__ void combine_keys(const Args& a, const Tensor& x, const RowTile& t, RowShared& s, const Real* weights,
                             const Tensor& to) {
  constexpr int lanes = lanes_of(Dim), groups = BLOCK / lanes;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
  const Data* from = x.head(t.batch, t.kv_head, 0);
  __syncthreads();
  for (int d = lane; d < (Dim + lanes - 1) / lanes * lanes; d += lanes) {
    Real total[ROWS] = {};
    for (i64 start = group; d < Dim && start < t.keys; start += kRun * groups) {
      const i64 stop = min(t.keys, start + kRun * groups);
      Real sum[ROWS] = {};
#pragma unroll 4
      for (i64 ic = start; ic < stop; ic += groups) {
        const Real value = load(from + ic * x.n + d * x.d);
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
          if (t.has(r)) sum[r] += weights[r * a.nk + ic] * value;
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) total[r] += sum[r];
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      __syncthreads();
      s.parts[threadIdx.x] = total[r];
      __syncthreads();
      if (group || d >= Dim || !t.has(r)) continue;
      Real sum = 0;
      for (int i = 0; i < groups; ++i) sum += s.parts[i * lanes + lane];
      store(to.head(t.batch, t.head, t.first + r) + d * to.d, sum);
    }
  }
}

// Adds weights^T s.row, [keys, Dim], into `sums` atomically (an addition for every tile, key and feature), or into the
// block's own copy.
template <int Dim>
__device__ void scatter_keys(const Args& a, const Sums& sums, Real* copy, const RowTile& t, const RowShared& s,
                             const Real* weights) {
  Real* to = copy ? nullptr : sums.head(t.batch, t.kv_head, 0);
  __syncthreads();
  for_elements<Dim>(t.keys, [&](i64 ic, int d) {
    Real sum = 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
      if (t.has(r)) sum += weights[r * a.nk + ic] * s.row[r][d];
    if constexpr (STEPS & OWN_COPIES) {
      copy[ic * Dim + d] += sum;
    } else {
      atomicAdd(to + ic * sums.n + d * sums.d, sum);
    }
  });
}

// gradients[r, ic] = scale * weights * (ga - correction) with ga = dO V^T and correction = sum over keys of weights * ga.
__device__ void score_gradients(const Args& a, const RowTile& t, RowShared& s, const Real* weights, Real* gradients) {
  load_rows<VALUE_DIM>(a.grad_out, t, s);
  dot_keys<VALUE_DIM>(a, a.v, t, s, 1, gradients);
  for (int r = 0; r < t.count; ++r, weights += a.nk, gradients += a.nk) {
    const i64 keys = attended(a, t.first + r);
    Real correction = 0;
    for (i64 ic = threadIdx.x; ic < keys; ic += BLOCK) correction += weights[ic] * gradients[ic];
    correction = block_sum(correction, s.warps);
    for (i64 ic = threadIdx.x; ic < t.keys; ic += BLOCK)
      gradients[ic] = ic < keys ? Real(a.scale) * weights[ic] * (gradients[ic] - correction) : Real(0);
    if ((STEPS & CORRECTIONS) && threadIdx.x == 0) a.corrections[t.flat + r] = correction;
  }
}

// All steps of one tile; `scratch` holds what is not stored, the copies are the block's own.
__device__ void row_tile(const Args& a, const RowTile& t, RowShared& s, Real* scratch, Real* copy_k, Real* copy_v) {
  Real* weights = STEPS & A_STORED ? a.a + t.flat * a.nk : scratch;
  Real* gradients = STEPS & GS_STORED ? a.gs + t.flat * a.nk : scratch + ROWS * a.nk;
  if constexpr (STEPS & SOFTMAX) softmax_rows(a, t, s, weights);
  if constexpr (STEPS & OUTPUT) combine_keys<VALUE_DIM>(a, a.v, t, s, weights, a.out);
  if constexpr (STEPS & SCORE_GRADIENTS) score_gradients(a, t, s, weights, gradients);
  if constexpr (STEPS & GRAD_V) scatter_keys<VALUE_DIM>(a, a.sum_v, copy_v, t, s, weights);  // s.row is dO here
  if constexpr (STEPS & GRAD_Q) combine_keys<HEAD_DIM>(a, a.k, t, s, gradients, a.grad_q);
  if constexpr (STEPS & GRAD_K) {
    load_rows<HEAD_DIM>(a.q, t, s);
    scatter_keys<HEAD_DIM>(a, a.sum_k, copy_k, t, s, gradients);
  }
}

// The study's arrangements of attention, one block of threads a row or a column, one value a thread: separate forward and
// backward, and the fused forms v2 (GV and GK atomic), v3 (GK atomic) and v4 (no atomics).
#define ROW_WARPS 1
#define SPLIT_WARPS 1
#include "tensor.cuh"

#ifndef COLUMNS
#define COLUMNS 1   // neighbouring columns of a column pass's block: 1 as in the study; more read whole sectors
#endif
#ifndef ROW_THREADS
#define ROW_THREADS 128
#endif

#define INFINITY_REAL (sizeof(Real) == 8 ? Real(__longlong_as_double(0x7ff0000000000000ll)) : Real(__int_as_float(0x7f800000)))

struct PlainArgs {
  Args base;
  Real *weights, *gradients;  // A and GS, [B, H, Nq, Nk]
  Real* scratch;              // 2 * Nk values a block of the grid, for the forms that keep no matrix
};

constexpr int kLanes = HEAD_DIM > 64 ? 128 : HEAD_DIM > 32 ? 64 : 32;  // threads along the head dimension
constexpr int kParts = ROW_THREADS / kLanes;                           // shares of the other dimension
constexpr int kSlots = (HEAD_DIM + kLanes - 1) / kLanes;
static_assert(ROW_THREADS % 128 == 0, "whole heads of threads");

struct Row {
  i64 batch, head, kv_head, n, keys, index;
  __device__ Row(const Args& a, i64 item)
      : batch(item / a.nq / a.heads), head(item / a.nq % a.heads), kv_head(head / (a.heads / a.kv_heads)), n(item % a.nq),
        keys(CAUSAL ? max(min(a.nk, n + 1 + a.nk - a.nq), 0ll) : a.nk), index(item) {}
};

__device__ Real* row_of(const Tensor& x, i64 batch, i64 head, i64 n) { return x.data + batch * x.b + head * x.h + n * x.n; }

template <typename Join>
__device__ Real reduce(Real x, Real* shared, const Join& join) {
  for (int offset = 16; offset; offset /= 2) x = join(x, __shfl_xor_sync(~0u, x, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (int i = 1; i < ROW_THREADS / 32; ++i) x = join(x, shared[i]);
  return x;
}

__device__ Real block_sum(Real x, Real* shared) {
  return reduce(x, shared, [](Real a, Real b) { return a + b; });
}

struct Shared {
  Real row[HEAD_DIM], parts[kParts][kSlots * kLanes], reduced[ROW_THREADS / 32];
};

__device__ void load_row(const Tensor& x, const Row& r, Shared& s) {
  __syncthreads();
  const Real* from = row_of(x, r.batch, r.head, r.n);
  for (int d = threadIdx.x; d < HEAD_DIM; d += ROW_THREADS) s.row[d] = from[d * x.d];
  __syncthreads();
}

// to[ic] = factor * <s.row, x[ic]> for the row's keys.
__device__ void dot_keys(const Args& a, const Tensor& x, const Row& r, const Shared& s, Real factor, Real* to) {
  const Real* from = row_of(x, r.batch, r.kv_head, 0);
  for (i64 ic = threadIdx.x; ic < r.keys; ic += ROW_THREADS) {
    Real sum = 0;
#pragma unroll 8
    for (int d = 0; d < HEAD_DIM; ++d) sum += s.row[d] * from[ic * x.n + d * x.d];
    to[ic] = sum * factor;
  }
}

// The row's weights: softmax of its scores; also its lse.
__device__ void softmax_row(const Args& a, const Row& r, Shared& s, Real* weights) {
  load_row(a.q, r, s);
  dot_keys(a, a.k, r, s, Real(a.scale), weights);
  Real top = -INFINITY_REAL;
  for (i64 ic = threadIdx.x; ic < r.keys; ic += ROW_THREADS) top = weights[ic] > top ? weights[ic] : top;
  top = reduce(top, s.reduced, [](Real x, Real y) { return x > y ? x : y; });
  Real sum = 0;
  for (i64 ic = threadIdx.x; ic < r.keys; ic += ROW_THREADS) {
    weights[ic] = exp(weights[ic] - top);
    sum += weights[ic];
  }
  sum = block_sum(sum, s.reduced);
  for (i64 ic = threadIdx.x; ic < r.keys; ic += ROW_THREADS) weights[ic] /= sum;
  if (threadIdx.x == 0) a.lse[r.index] = r.keys ? top + log(sum) : -INFINITY_REAL;
  __syncthreads();
}

// to[d] = sum over ic of weights[ic] * x[ic, d]
__device__ void combine_keys(const Tensor& x, const Row& r, Shared& s, const Real* weights, Real* to, i64 stride) {
  const int lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes;
  const Real* from = row_of(x, r.batch, r.kv_head, 0);
  for (int slot = 0; slot < kSlots; ++slot) {
    const int d = slot * kLanes + lane;
    Real sum = 0;
    if (d < HEAD_DIM)
      for (i64 ic = part; ic < r.keys; ic += kParts) sum += weights[ic] * from[ic * x.n + d * x.d];
    s.parts[part][d] = sum;
  }
  __syncthreads();
  for (int d = threadIdx.x; d < HEAD_DIM; d += ROW_THREADS) {
    Real sum = 0;
    for (int i = 0; i < kParts; ++i) sum += s.parts[i][d];
    to[d * stride] = sum;
  }
  __syncthreads();
}

// x[ic, d] += weights[ic] * s.row[d], atomically: one addition for every row, key and column.
__device__ void scatter_keys(const Tensor& x, const Row& r, const Shared& s, const Real* weights) {
  const int lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes;
  Real* to = row_of(x, r.batch, r.kv_head, 0);
  for (i64 ic = part; ic < r.keys; ic += kParts)
    for (int d = lane; d < HEAD_DIM; d += kLanes) atomicAdd(to + ic * x.n + d * x.d, weights[ic] * s.row[d]);
}

// gradients[ic] = scale * weights[ic] * (ga[ic] - corr) with ga = grad_out V^T and corr = sum of weights * ga.
__device__ void score_gradients(const Args& a, const Row& r, Shared& s, const Real* weights, Real* gradients) {
  load_row(a.grad_out, r, s);
  dot_keys(a, a.v, r, s, 1, gradients);
  Real corr = 0;
  for (i64 ic = threadIdx.x; ic < r.keys; ic += ROW_THREADS) corr += weights[ic] * gradients[ic];
  corr = block_sum(corr, s.reduced);
  for (i64 ic = threadIdx.x; ic < r.keys; ic += ROW_THREADS) gradients[ic] = Real(a.scale) * weights[ic] * (gradients[ic] - corr);
  __syncthreads();
}

#define ENTRY extern "C" __global__ void __launch_bounds__(ROW_THREADS)
#define FOR_ROWS(a) for (i64 item = blockIdx.x; item < (a).batch * (a).heads * (a).nq; item += gridDim.x)

// A and out, one row a block: the separate forward, and pass 1 of v3 and v4.
ENTRY forward_rows(const PlainArgs p) {
  __shared__ Shared s;
  const Args& a = p.base;
  FOR_ROWS(a) {
    const Row r(a, item);
    Real* weights = p.weights + item * a.nk;
    softmax_row(a, r, s, weights);
    combine_keys(a.v, r, s, weights, row_of(a.out, r.batch, r.head, r.n), a.out.d);
  }
}

// Everything of a row at once, GV and GK by atomics (v2). gv and gk start at zero.
ENTRY fused_rows(const PlainArgs p) {
  __shared__ Shared s;
  const Args& a = p.base;
  Real *weights = p.scratch + blockIdx.x * 2 * a.nk, *gradients = weights + a.nk;
  FOR_ROWS(a) {
    const Row r(a, item);
    softmax_row(a, r, s, weights);
    combine_keys(a.v, r, s, weights, row_of(a.out, r.batch, r.head, r.n), a.out.d);
    score_gradients(a, r, s, weights, gradients);
    scatter_keys(a.gv, r, s, weights);
    combine_keys(a.k, r, s, gradients, row_of(a.gq, r.batch, r.head, r.n), a.gq.d);
    load_row(a.q, r, s);
    scatter_keys(a.gk, r, s, gradients);
  }
}

// GS from A (pass 3).
ENTRY gradient_rows(const PlainArgs p) {
  __shared__ Shared s;
  FOR_ROWS(p.base) score_gradients(p.base, Row(p.base, item), s, p.weights + item * p.base.nk, p.gradients + item * p.base.nk);
}

// GQ from GS (pass 4 of v4).
ENTRY query_rows(const PlainArgs p) {
  __shared__ Shared s;
  const Args& a = p.base;
  FOR_ROWS(a) {
    const Row r(a, item);
    combine_keys(a.k, r, s, p.gradients + item * a.nk, row_of(a.gq, r.batch, r.head, r.n), a.gq.d);
  }
}

// GQ, and GK by atomics, from GS (pass 4 of v3).
ENTRY query_key_rows(const PlainArgs p) {
  __shared__ Shared s;
  const Args& a = p.base;
  FOR_ROWS(a) {
    const Row r(a, item);
    combine_keys(a.k, r, s, p.gradients + item * a.nk, row_of(a.gq, r.batch, r.head, r.n), a.gq.d);
    load_row(a.q, r, s);
    scatter_keys(a.gk, r, s, p.gradients + item * a.nk);
  }
}

// Backward of a row from A: GQ, and GK by atomics; GS stays in scratch.
ENTRY backward_rows_atomic(const PlainArgs p) {
  __shared__ Shared s;
  const Args& a = p.base;
  Real* gradients = p.scratch + blockIdx.x * 2 * a.nk;
  FOR_ROWS(a) {
    const Row r(a, item);
    score_gradients(a, r, s, p.weights + item * a.nk, gradients);
    combine_keys(a.k, r, s, gradients, row_of(a.gq, r.batch, r.head, r.n), a.gq.d);
    load_row(a.q, r, s);
    scatter_keys(a.gk, r, s, gradients);
  }
}

// Backward of a row from A: GQ, and GS stored for the column pass.
ENTRY backward_rows_store(const PlainArgs p) {
  __shared__ Shared s;
  const Args& a = p.base;
  FOR_ROWS(a) {
    const Row r(a, item);
    Real* gradients = p.gradients + item * a.nk;
    score_gradients(a, r, s, p.weights + item * a.nk, gradients);
    combine_keys(a.k, r, s, gradients, row_of(a.gq, r.batch, r.head, r.n), a.gq.d);
  }
}

// to[ic, d] = sum over ir of matrix[ir, ic] * rows[ir, d], COLUMNS neighbouring ic a block, accumulators in registers.
__device__ void column_pass(const Args& a, const Real* matrix, const Tensor& rows, const Tensor& to) {
  __shared__ Real parts[kParts][COLUMNS][kLanes];
  const int lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes;
  const i64 tiles = (a.nk + COLUMNS - 1) / COLUMNS, first = blockIdx.x % tiles * COLUMNS, group = a.heads / a.kv_heads;
  const i64 kv_head = blockIdx.x / tiles % a.kv_heads, batch = blockIdx.x / tiles / a.kv_heads;
  const i64 start = CAUSAL ? max(first - (a.nk - a.nq), 0ll) : 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    const int d = slot * kLanes + lane;
    Real sum[COLUMNS] = {};
    for (i64 head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const Real *line = matrix + (batch * a.heads + head) * a.nq * a.nk + first, *row = row_of(rows, batch, head, 0);
      for (i64 ir = start + part; ir < a.nq; ir += kParts) {
        const Real x = d < HEAD_DIM ? row[ir * rows.n + d * rows.d] : 0;
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i)
          if (first + i < a.nk && (!CAUSAL || first + i <= ir + a.nk - a.nq)) sum[i] += line[ir * a.nk + i] * x;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) parts[part][i][lane] = sum[i];
    __syncthreads();
    for (int i = part; i < COLUMNS; i += kParts) {
      if (d >= HEAD_DIM || first + i >= a.nk) continue;
      Real total = 0;
      for (int j = 0; j < kParts; ++j) total += parts[j][i][lane];
      row_of(to, batch, kv_head, first + i)[d * to.d] = total;
    }
  }
}

ENTRY value_columns(const PlainArgs p) { column_pass(p.base, p.weights, p.base.grad_out, p.base.gv); }
ENTRY key_columns(const PlainArgs p) { column_pass(p.base, p.gradients, p.base.q, p.base.gk); }

// Zeros in gk, and in gv where it is added by atomics too.
ENTRY clear(const PlainArgs p) {
  const Args& a = p.base;
  for (i64 i = static_cast<i64>(blockIdx.x) * ROW_THREADS + threadIdx.x; i < a.batch * a.kv_heads * a.nk * HEAD_DIM;
       i += static_cast<i64>(gridDim.x) * ROW_THREADS) {
    const i64 d = i % HEAD_DIM, n = i / HEAD_DIM % a.nk, h = i / HEAD_DIM / a.nk % a.kv_heads, b = i / HEAD_DIM / a.nk / a.kv_heads;
    row_of(a.gk, b, h, n)[d * a.gk.d] = 0;
    row_of(a.gv, b, h, n)[d * a.gv.d] = 0;
  }
}

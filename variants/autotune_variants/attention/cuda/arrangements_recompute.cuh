// Column passes that recompute GS, and A unless it is stored, a few rows at a time: GK and GV stay on chip, GQ goes out
// by atomics where it is wanted.
#pragma once
#include "arrangements_columns.cuh"

constexpr int kStep = BLOCK / COLUMNS;  // query rows at a time: a thread computes one score

struct StepShared {
  Real k[COLUMNS][HEAD_DIM | 1], v[COLUMNS][VALUE_DIM | 1];  // odd pitches: neighbouring keys in different banks
  Real a[BLOCK], gs[BLOCK], parts[BLOCK];                    // [kStep, COLUMNS]
};

template <int Dim>
__device__ __forceinline__ Real dot(const Data* from, i64 stride, const Real* with) {
  Real sum = 0;
#pragma unroll 8
  for (int d = 0; d < Dim; ++d) sum += load(from + d * stride) * with[d];
  return sum;
}

// A and GS of the thread's row and key, into shared memory; zeros outside the problem and the mask.
__device__ void score_step(const Args& a, const ColumnTile& t, StepShared& s, i64 head, i64 start) {
  const int i = threadIdx.x % COLUMNS;
  const i64 row = start + threadIdx.x / COLUMNS, flat = (t.batch * a.heads + head) * a.nq + row;
  Real weight = 0, gradient = 0;
  if (row < a.nq && t.attends(a, row, i)) {
    if constexpr (STEPS & A_STORED) {
      weight = a.a[flat * a.nk + t.first + i];
    } else {
      const Real score = dot<HEAD_DIM>(a.q.head(t.batch, head, row), a.q.d, s.k[i]) * Real(a.scale);
      const Real lse = *a.lse.head(t.batch, head, row);
      weight = lse == -__int_as_float(0x7f800000) ? Real(0) : exp(score - lse);
    }
    const Real ga = dot<VALUE_DIM>(a.grad_out.head(t.batch, head, row), a.grad_out.d, s.v[i]);
    gradient = Real(a.scale) * weight * (ga - a.corrections[flat]);
  }
  __syncthreads();
  s.a[threadIdx.x] = weight;
  s.gs[threadIdx.x] = gradient;
  __syncthreads();
}

// total[slot, i] += sum over the step's rows of matrix[row, i] * x[row, d]
template <int Dim, int Slots>
__device__ __forceinline__ void add_step(const Tensor& x, const Data* from, int rows, const Real* matrix,
                                         Real (&total)[Slots][COLUMNS]) {
  constexpr int lanes = lanes_of(Dim), groups = BLOCK / lanes;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
#pragma unroll
  for (int slot = 0; slot < Slots; ++slot) {
    const int d = slot * lanes + lane;
    Real sum[COLUMNS] = {};
#pragma unroll 4
    for (int r = group; d < Dim && r < rows; r += groups) {
      const Real value = load(from + r * x.n + d * x.d);
#pragma unroll
      for (int i = 0; i < COLUMNS; ++i) sum[i] += matrix[r * COLUMNS + i] * value;
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) total[slot][i] += sum[i];
  }
}

__device__ void recompute_columns(const Args& a, const ColumnTile& t, StepShared& s) {
  constexpr int slots_k = (HEAD_DIM + lanes_of(HEAD_DIM) - 1) / lanes_of(HEAD_DIM);
  constexpr int slots_v = (VALUE_DIM + lanes_of(VALUE_DIM) - 1) / lanes_of(VALUE_DIM);
  Real total_k[slots_k ? slots_k : 1][COLUMNS] = {}, total_v[slots_v ? slots_v : 1][COLUMNS] = {};
  const Data *k = a.k.head(t.batch, t.kv_head, t.first), *v = a.v.head(t.batch, t.kv_head, t.first);
  __syncthreads();
  for_elements<HEAD_DIM>(COLUMNS, [&](i64 i, int d) { s.k[i][d] = i < t.count ? load(k + i * a.k.n + d * a.k.d) : Real(0); });
  for_elements<VALUE_DIM>(COLUMNS, [&](i64 i, int d) { s.v[i][d] = i < t.count ? load(v + i * a.v.n + d * a.v.d) : Real(0); });
  __syncthreads();
  const i64 shared_by = a.heads / a.kv_heads;
  for (i64 head = t.kv_head * shared_by; head < (t.kv_head + 1) * shared_by; ++head) {
    for (i64 start = t.start; start < a.nq; start += kStep) {
      const int rows = static_cast<int>(min(static_cast<i64>(kStep), a.nq - start));
      score_step(a, t, s, head, start);
      if constexpr (STEPS & GRAD_V) add_step<VALUE_DIM>(a.grad_out, a.grad_out.head(t.batch, head, start), rows, s.a, total_v);
      if constexpr (STEPS & GRAD_K) add_step<HEAD_DIM>(a.q, a.q.head(t.batch, head, start), rows, s.gs, total_k);
      if constexpr (STEPS & GRAD_Q) {
        Real* to = a.sum_q.head(t.batch, head, start);
        for_elements<HEAD_DIM>(rows, [&](i64 r, int d) {
          Real sum = 0;
#pragma unroll
          for (int i = 0; i < COLUMNS; ++i) sum += s.gs[r * COLUMNS + i] * s.k[i][d];
          atomicAdd(to + r * a.sum_q.n + d * a.sum_q.d, sum);
        });
      }
    }
  }
  if constexpr (STEPS & GRAD_V) store_columns<VALUE_DIM>(t, total_v, s.parts, 0, a.grad_v);
  if constexpr (STEPS & GRAD_K) store_columns<HEAD_DIM>(t, total_k, s.parts, 0, a.grad_k);
}

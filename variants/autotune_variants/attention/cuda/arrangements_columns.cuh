// Column passes: a block takes COLUMNS neighbouring keys of a key-value head and sweeps the query rows of its group.
#pragma once
#include "arrangements_base.cuh"

struct ColumnTile {
  i64 batch, kv_head, first, start;  // start: the first query row that attends any of the keys
  int count;

  __device__ ColumnTile(const Args& a, i64 item) {
    const i64 tiles = (a.nk + COLUMNS - 1) / COLUMNS, pair = item / tiles;
    batch = pair / a.kv_heads;
    kv_head = pair % a.kv_heads;
    first = item % tiles * COLUMNS;
    start = CAUSAL ? max(first - (a.nk - a.nq), 0ll) : 0;
    count = static_cast<int>(min(static_cast<i64>(COLUMNS), a.nk - first));
  }

  __device__ __forceinline__ bool attends(const Args& a, i64 row, int i) const {
    return (COLUMNS == 1 || i < count) && (!CAUSAL || first + i <= row + a.nk - a.nq);
  }
};

// Sums of a block over its groups of threads: to[i, d] for each of the tile's keys.
template <int Dim, int Slots>
__device__ void store_columns(const ColumnTile& t, const Real (&total)[Slots][COLUMNS], Real* parts, int first,
                              const Tensor& to) {
  constexpr int lanes = lanes_of(Dim), groups = BLOCK / lanes;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
#pragma unroll
  for (int slot = 0; slot < Slots; ++slot) {
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
      const int d = first + slot * lanes + lane;
      __syncthreads();
      parts[threadIdx.x] = total[slot][i];
      __syncthreads();
      if (group || d >= Dim || i >= t.count) continue;
      Real sum = 0;
      for (int j = 0; j < groups; ++j) sum += parts[j * lanes + lane];
      store(to.head(t.batch, t.kv_head, t.first + i) + d * to.d, sum);
    }
  }
}

// to[ic, d] = sum over rows of matrix[row, ic] * x[row, d]; one feature a thread, sums in registers.
template <int Dim>
__device__ void columns_on_chip(const Args& a, const ColumnTile& t, const Real* matrix, const Tensor& x, const Tensor& to) {
  __shared__ Real parts[BLOCK];
  constexpr int lanes = lanes_of(Dim), groups = BLOCK / lanes;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
  const i64 shared_by = a.heads / a.kv_heads;
  for (int first = 0; first < Dim; first += lanes) {
    const int d = first + lane;
    Real total[1][COLUMNS] = {};
    for (i64 head = t.kv_head * shared_by; head < (t.kv_head + 1) * shared_by; ++head) {
      const Real* column = matrix + (t.batch * a.heads + head) * a.nq * a.nk + t.first;
      const Data* from = x.head(t.batch, head, 0);
      for (i64 start = t.start + group; d < Dim && start < a.nq; start += kRun * groups) {
        const i64 stop = min(a.nq, start + kRun * groups);
        Real sum[COLUMNS] = {};
#pragma unroll 4
        for (i64 row = start; row < stop; row += groups) {
          const Real value = load(from + row * x.n + d * x.d);
#pragma unroll
          for (int i = 0; i < COLUMNS; ++i)
            if (t.attends(a, row, i)) sum[i] += column[row * a.nk + i] * value;
        }
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) total[0][i] += sum[i];
      }
    }
    store_columns<Dim>(t, total, parts, first, to);
  }
}

// The same as the study sweeps it: features outermost, the rows over the threads, the column read again for each feature.
template <int Dim>
__device__ void columns_swept(const Args& a, const ColumnTile& t, const Real* matrix, const Tensor& x, const Tensor& to) {
  __shared__ Real warps[BLOCK / 32];
  const i64 shared_by = a.heads / a.kv_heads;
  for (int d = 0; d < Dim; ++d) {
    Real total[COLUMNS] = {};
    for (i64 head = t.kv_head * shared_by; head < (t.kv_head + 1) * shared_by; ++head) {
      const Real* column = matrix + (t.batch * a.heads + head) * a.nq * a.nk + t.first;
      const Data* from = x.head(t.batch, head, 0) + d * x.d;
#pragma unroll 4
      for (i64 row = t.start + threadIdx.x; row < a.nq; row += BLOCK) {
        const Real value = load(from + row * x.n);
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i)
          if (t.attends(a, row, i)) total[i] += column[row * a.nk + i] * value;
      }
    }
    for (int i = 0; i < t.count; ++i) {
      Real own = 0;
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) own = i == j ? total[j] : own;
      own = block_sum(own, warps);
      if (threadIdx.x == 0) store(to.head(t.batch, t.kv_head, t.first + i) + d * to.d, own);
    }
  }
}

template <int Dim>
__device__ void column_sums(const Args& a, const ColumnTile& t, const Real* matrix, const Tensor& x, const Tensor& to) {
  if constexpr (ON_CHIP) {
    columns_on_chip<Dim>(a, t, matrix, x, to);
  } else {
    columns_swept<Dim>(a, t, matrix, x, to);
  }
}

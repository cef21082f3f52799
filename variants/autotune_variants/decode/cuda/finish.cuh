// From the sums of the warps of a block to the output, to the split's part, or to the other blocks of a cluster.
#pragma once
#include "base.cuh"

constexpr int kOwn = GROUP < kQueries ? GROUP : kQueries;        // queries of a block
constexpr int kNumbers = kOwn * HEAD_DIM;                        // sums of a block
constexpr int kRow = kUnits * kUnit + kUnit;                     // from one query to the next: lanes meet in fewer banks
constexpr int kSlice = (kNumbers + CLUSTER - 1) / CLUSTER;       // sums that a block of a cluster adds up
// What comes from the blocks of a cluster: a barrier that counts its bytes, shifts and totals, slices of the sums.
constexpr int kInboxBytes = CLUSTER == 1 ? 0 : 16 + (CLUSTER * (2 * kOwn + kSlice) * static_cast<int>(sizeof(Real)) + 15) / 16 * 16;
constexpr int kMerging = WARPS * kOwn * (kRow + 3);

// What the warps of a block have, and what follows for a query: always added in the same order.
struct Merged {
  Real *sums, *shifts, *totals, *factors;  // [WARPS][kOwn][kRow], [WARPS][kOwn] each
  __device__ __forceinline__ explicit Merged(Real* shared)
      : sums(shared), shifts(sums + WARPS * kOwn * kRow), totals(shifts + WARPS * kOwn), factors(totals + WARPS * kOwn) {}

  // `result(i, e)` are a lane's sums: column kUnit (8 (i / kUnit) + g) + i % kUnit by query 2 t + e.
  template <typename Result>
  __device__ __forceinline__ void gather(const State& state, Result result) {
    const Lane lane;
    const int warp = threadIdx.x / 32;
    constexpr int kVector = 16 / sizeof(Real);
    struct alignas(16) Vector {
      Real of[kVector];
    };
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = 2 * lane.t + e;
      if (column >= kOwn) continue;
      if (lane.g == 0) shifts[warp * kOwn + column] = state.shift[e], totals[warp * kOwn + column] = state.sum[e];
#pragma unroll
      for (int i = 0; i < kSums; i += kVector) {
        const int unit = 8 * (i / kUnit) + lane.g;
        if (unit >= kUnits) continue;
        Vector some;
#pragma unroll
        for (int j = 0; j < kVector; ++j) some.of[j] = result(i + j, e);
        *reinterpret_cast<Vector*>(sums + (warp * kOwn + column) * kRow + unit * kUnit + i % kUnit) = some;
      }
    }
    __syncthreads();
    if (threadIdx.x < WARPS * kOwn) factors[threadIdx.x] = weight(shifts[threadIdx.x], shift(threadIdx.x % kOwn));
    __syncthreads();
  }
  __device__ __forceinline__ Real shift(int column) const {
    Real top = shifts[column];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) top = larger(top, shifts[w * kOwn + column]);
    return top;
  }
  __device__ __forceinline__ Real total(int column) const { return over_warps(totals + column, kOwn, column); }
  __device__ __forceinline__ Real sum(int column, int d) const { return over_warps(sums + column * kRow + d, kOwn * kRow, column); }

 private:
  __device__ __forceinline__ Real over_warps(const Real* first, int stride, int column) const {
    Real sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += factors[w * kOwn + column] * first[w * stride];
    return sum;
  }
};

__device__ __forceinline__ void put(const Args& a, const Task& task, int column, int d, Real sum, Real total) {
  Data* out = a.out_data + task.batch * a.out.b + (task.kv_head * GROUP + task.query(column)) * a.out.h;
  out[d * a.out.d] = narrow(total == 0 ? Real(0) : sum / total);
}

#if CLUSTER > 1
struct Inbox {
  u64* const arrived;
  Real* const stats;   // [CLUSTER][2][kOwn]: shift and total
  Real* const slices;  // [CLUSTER][kSlice]
  __device__ __forceinline__ explicit Inbox(unsigned char* shared)
      : arrived(reinterpret_cast<u64*>(shared)), stats(reinterpret_cast<Real*>(shared + 16)), slices(stats + CLUSTER * 2 * kOwn) {}
  __device__ __forceinline__ static int slice(int block) { return max(min(kNumbers - block * kSlice, kSlice), 0); }
  __device__ __forceinline__ void open() const {
    open_inbox(arrived, CLUSTER * (2 * kOwn + slice(blockIdx.x)) * static_cast<int>(sizeof(Real)));
  }
};

// Every block adds up its slice of the sums of all.
__device__ __forceinline__ void over_cluster(const Args& a, const Task& task, const Merged& merged, const Inbox& inbox) {
  cluster_wait();  // by now the inboxes of all blocks are open
#pragma unroll 1
  for (int i = threadIdx.x; i < CLUSTER * kOwn; i += kThreads) {
    const int block = i / kOwn, column = i % kOwn;
    send(inbox.stats + (task.split * 2 + 0) * kOwn + column, block, merged.shift(column), inbox.arrived);
    send(inbox.stats + (task.split * 2 + 1) * kOwn + column, block, merged.total(column), inbox.arrived);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < kNumbers; i += kThreads)
    send(inbox.slices + task.split * kSlice + i % kSlice, i / kSlice, merged.sum(i / HEAD_DIM, i % HEAD_DIM), inbox.arrived);
  wait_inbox(inbox.arrived);
#pragma unroll 1
  for (int i = threadIdx.x; i < Inbox::slice(task.split); i += kThreads) {
    const int number = task.split * kSlice + i, column = number / HEAD_DIM;
    if (task.query(column) >= GROUP) break;
    Real top = -infinity(), sum = 0, total = 0;
#pragma unroll
    for (int block = 0; block < CLUSTER; ++block) top = larger(top, inbox.stats[block * 2 * kOwn + column]);
#pragma unroll
    for (int block = 0; block < CLUSTER; ++block) {
      const Real factor = weight(inbox.stats[block * 2 * kOwn + column], top);
      total += factor * inbox.stats[(block * 2 + 1) * kOwn + column];
      sum += factor * inbox.slices[block * kSlice + i];
    }
    put(a, task, column, number % HEAD_DIM, sum, total);
  }
}
#endif

template <typename Result>
__device__ __forceinline__ void finish(const Args& a, const Task& task, const State& state, unsigned char* shared, Result result) {
  if (STAGES) __syncthreads();  // tiles lay where sums will
  Merged merged(reinterpret_cast<Real*>(shared + kInboxBytes));
  merged.gather(state, result);
#if CLUSTER > 1
  over_cluster(a, task, merged, Inbox(shared));
#else
  const i64 part = (task.batch * a.kv_heads + task.kv_head) * a.splits + task.split;
#pragma unroll 1
  for (int i = threadIdx.x; i < kNumbers; i += kThreads) {
    const int column = i / HEAD_DIM, d = i % HEAD_DIM, query = task.query(column);
    if (query >= GROUP) break;
    if (!SPLIT) {
      put(a, task, column, d, merged.sum(column, d), merged.total(column));
      continue;
    }
    a.parts[(part * GROUP + query) * HEAD_DIM + d] = static_cast<Part>(merged.sum(column, d));
    if (d) continue;
    a.stats[(part * 2 + 0) * GROUP + query] = static_cast<Part>(merged.shift(column));
    a.stats[(part * 2 + 1) * GROUP + query] = static_cast<Part>(merged.total(column));
  }
#endif
}

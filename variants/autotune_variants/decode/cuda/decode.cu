// decode: one query per head against its keys and values, the keys split over blocks, and the splits combined.
#include "base.cuh"
#if STORAGE == 1 || STORAGE == 2
#include "half.cuh"
#else
#include "double.cuh"
#endif

constexpr int kMergeBytes = kMerging * sizeof(Real);
constexpr int kAttendShared = kInboxBytes + (kRingBytes > kMergeBytes ? kRingBytes : kMergeBytes);
#ifdef ATTEND_SHARED
static_assert(ATTEND_SHARED == kAttendShared, "what the host gives");
#endif

#if CLUSTER > 1
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(kThreads) attend_cluster(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) unsigned char shared[];
  Inbox(shared).open();
  attend(a, shared);
}
#else
extern "C" __global__ void __launch_bounds__(kThreads) attend_splits(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) unsigned char shared[];
  if (SPLIT) let_next_start();
  attend(a, shared);
}
#endif

constexpr int kCombining = 256;                                                     // threads of a block
constexpr int kColumns = HEAD_DIM > 128 ? 256 : HEAD_DIM > 64 ? 128 : HEAD_DIM > 32 ? 64 : 32;
constexpr int kRows = kCombining / kColumns;                                        // splits at a time

// Of all threads of a block, the same in each of them; always in the same order.
template <typename Join>
__device__ __forceinline__ Real over_block(Real x, Real* space, Join join) {
#pragma unroll
  for (int bit = 1; bit < 32; bit *= 2) x = join(x, __shfl_xor_sync(~0u, x, bit));
  if (threadIdx.x % 32 == 0) space[threadIdx.x / 32] = x;
  __syncthreads();
  x = space[0];
  for (int i = 1; i < kCombining / 32; ++i) x = join(x, space[i]);
  __syncthreads();
  return x;
}

// One block for each query head of the batch.
extern "C" __global__ void __launch_bounds__(kCombining) combine_splits(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int splits = static_cast<int>(a.splits);
  Real *factors = reinterpret_cast<Real*>(shared), *sums = factors + splits, *space = sums + kRows * kColumns;
  wait_for_previous();
  const int head = blockIdx.x, query = head % GROUP;
  const i64 batch = blockIdx.y, first = (batch * a.kv_heads + head / GROUP) * splits;
  const Part* stats = a.stats + first * 2 * GROUP + query;
  Real top = -infinity();
  for (int i = threadIdx.x; i < splits; i += kCombining) top = larger(top, stats[i * 2 * GROUP]);
  top = over_block(top, space, [](Real x, Real y) { return larger(x, y); });
  Real total = 0;
  for (int i = threadIdx.x; i < splits; i += kCombining) {
    factors[i] = weight(stats[i * 2 * GROUP], top);
    total += factors[i] * stats[(i * 2 + 1) * GROUP];
  }
  total = over_block(total, space, [](Real x, Real y) { return x + y; });
  const int d = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const Part* parts = a.parts + (first * GROUP + query) * HEAD_DIM + d;
  Real sum = 0;
  if (d < HEAD_DIM) {
#pragma unroll 4
    for (int i = row; i < splits; i += kRows) sum += factors[i] * parts[static_cast<i64>(i) * GROUP * HEAD_DIM];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (row || d >= HEAD_DIM) return;
  for (int i = 1; i < kRows; ++i) sum += sums[i * kColumns + d];
  a.out_data[batch * a.out.b + head * a.out.h + d * a.out.d] = narrow(total == 0 ? Real(0) : sum / total);
}

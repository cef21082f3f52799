// What all decode kernels share: arguments, units of 16 bytes, the range of keys of a block, the state of a softmax.
#pragma once

#ifndef STORAGE
#define STORAGE 0     // tensors hold 0: double, 1: bfloat16, 2: float16, 3: float
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef GROUP
#define GROUP 1       // query heads of a key-value head
#endif
#ifndef WARPS
#define WARPS 4       // of a block; each sweeps its own tiles of keys
#endif
#ifndef STAGES
#define STAGES 0      // tiles of a warp in shared memory, all but one on their way; 0: straight to registers
#endif
#ifndef SPLIT
#define SPLIT 0       // whether blocks share the keys of a head and leave parts for another launch
#endif
#ifndef CLUSTER
#define CLUSTER 1     // blocks that share the keys of a head and add up among themselves
#endif
#ifndef ALIGNED
#define ALIGNED 1     // rows contiguous and 16-byte aligned
#endif

typedef long long i64;
typedef unsigned long long u64;

struct Strides {
  i64 b, h, n, d;  // in elements
};

#if STORAGE == 0
typedef double Data, Real, Part;
#elif STORAGE == 3
typedef float Data;
typedef double Real;  // the float64 units are fast enough for what memory delivers, and round less
typedef float Part;   // of what splits leave in memory
#else
typedef unsigned short Data;
typedef float Real, Part;
#endif

struct Args {
  const Data *q_data, *k_data, *v_data;
  Data* out_data;
  Part* parts;  // [B, Hkv, splits, GROUP, D]: sums of weighted values, weights relative to the split's shift
  Part* stats;  // [B, Hkv, splits, 2, GROUP]: shift and sum of weights
  double scale;
  i64 batch, heads, kv_heads, n, splits, share;  // share: keys of a split
  Strides q, k, v, out;
};

#include "instructions.cuh"

constexpr int kThreads = 32 * WARPS;
constexpr int kQueries = 8;                                  // of a product
constexpr int kQueryTiles = (GROUP + kQueries - 1) / kQueries;
constexpr int kUnit = 16 / sizeof(Data);                     // elements of 16 bytes
constexpr int kUnits = (HEAD_DIM + kUnit - 1) / kUnit;       // of a row
constexpr int kKeySteps = (kUnits + 3) / 4;                  // a quad of lanes holds four units of a key
constexpr int kValueSteps = (kUnits + 7) / 8;                // eight lanes hold eight units of a value
constexpr int kSums = kValueSteps * kUnit;                   // of a lane, for each of its two queries

struct Lane {
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
};

__device__ __forceinline__ Real infinity() { return Real(__longlong_as_double(0x7ff0000000000000ll)); }
__device__ __forceinline__ Real larger(Real a, Real b) { return a > b ? a : b; }

// Sixteen bytes of a row: unit `unit` of it, zeros past its end and where it does not exist.
struct Unit {
  uint4 bits;
};
__device__ __forceinline__ Unit load_unit(const Data* row, i64 stride, int unit, bool exists) {
  Unit found = {make_uint4(0, 0, 0, 0)};
#if ALIGNED
  if (exists && unit < kUnits) found.bits = __ldg(reinterpret_cast<const uint4*>(row) + unit);
#else
  Data* elements = reinterpret_cast<Data*>(&found);
#pragma unroll
  for (int e = 0; e < kUnit; ++e) {
    const int d = unit * kUnit + e;
    if (exists && d < HEAD_DIM) elements[e] = row[d * stride];
  }
#endif
  return found;
}

// Which keys a block sweeps, for which queries of which head. The grid: blocks that share the keys, heads and tiles of
// their queries, batch.
struct Task {
  i64 batch = blockIdx.z, kv_head = blockIdx.y / kQueryTiles, first;
  int split = blockIdx.x, tile = blockIdx.y % kQueryTiles, count;  // `count` keys from `first` on
  __device__ __forceinline__ explicit Task(const Args& a) {
    first = min(split * a.share, a.n);
    count = static_cast<int>(min(a.share, a.n - first));
  }
  __device__ __forceinline__ int query(int column) const { return tile * kQueries + column; }
};

// Shift and sum of the weights of the two queries of a lane.
struct State {
  Real shift[2] = {-infinity(), -infinity()}, sum[2] = {0, 0};
};

constexpr Real kOutgrown = 8;  // weights may reach 2^8 before the shift moves

// Over the eight lanes that hold the keys of a query.
__device__ __forceinline__ Real over_keys_max(Real x) {
#pragma unroll
  for (int bit = 4; bit < 32; bit *= 2) x = larger(x, __shfl_xor_sync(~0u, x, bit));
  return x;
}
__device__ __forceinline__ Real over_keys_sum(Real x) {
#pragma unroll
  for (int bit = 4; bit < 32; bit *= 2) x += __shfl_xor_sync(~0u, x, bit);
  return x;
}

// Moves the shift up to `top` (of this lane's scores); returns what older sums have to be multiplied by.
__device__ __forceinline__ Real moved(Real& shift, Real top) {
  const Real next = static_cast<Part>(larger(shift, over_keys_max(top)));  // as the other splits will know it
  const Real factor = shift == next ? Real(1) : power(shift - next);  // also where both are -inf
  shift = next;
  return factor;
}

// Of a score, or of sums that go by a shift, once `shift` counts; nothing where there was no key.
__device__ __forceinline__ Real weight(Real score, Real shift) {
  return score == -infinity() ? Real(0) : power(score - shift);
}

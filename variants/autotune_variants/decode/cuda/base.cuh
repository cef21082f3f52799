// What all decode kernels share: arguments, the range of keys of a split, merging of warps and of splits.
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
#ifndef SPLITS
#define SPLITS 1      // blocks that share the keys of a head; 1 writes the output itself
#endif
#ifndef ALIGNED
#define ALIGNED 1     // rows contiguous and 16-byte aligned
#endif

typedef long long i64;

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
  Part* parts;  // [B, Hkv, SPLITS, GROUP, D]: sums of weighted values, weights relative to the split's shift
  Part* stats;  // [B, Hkv, SPLITS, 2, GROUP]: shift and sum of weights
  double scale;
  i64 batch, heads, kv_heads, n;
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

// Which keys a block sweeps, for which queries of which head.
struct Task {
  i64 batch, kv_head, first, last;
  int split, tile;
  __device__ __forceinline__ explicit Task(const Args& a) {
    i64 item = blockIdx.x;
    split = static_cast<int>(item % SPLITS), item /= SPLITS;
    tile = static_cast<int>(item % kQueryTiles), item /= kQueryTiles;
    kv_head = item % a.kv_heads, batch = item / a.kv_heads;
    const i64 share = (a.n + SPLITS - 1) / SPLITS;
    first = min(split * share, a.n), last = min(first + share, a.n);
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

__device__ __forceinline__ Real weight(Real score, Real shift) {
  return score == -infinity() ? Real(0) : power(score - shift);
}

// The sums of all warps of a block, and from there to the output or to the split's part. `result(i, e)` are a lane's sums
// and `place(i, e)` the column of the head they belong to; i runs to kSums, e: query 2t and 2t + 1.
template <int Sums, typename Result, typename Place>
__device__ __forceinline__ void finish(const Args& a, const Task& task, const State& state, Real* shared, Result result, Place place) {
  const Lane lane;
  const int warp = threadIdx.x / 32;
  Real* shifts = shared;                               // [WARPS][2][kQueries]
  Real* sums = shared + WARPS * 2 * kQueries;          // [kQueries][HEAD_DIM], of one warp after another
  if (lane.g == 0) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      shifts[(warp * 2 + 0) * kQueries + 2 * lane.t + e] = state.shift[e];
      shifts[(warp * 2 + 1) * kQueries + 2 * lane.t + e] = state.sum[e];
    }
  }
  for (int i = threadIdx.x; i < kQueries * HEAD_DIM; i += kThreads) sums[i] = 0;
  __syncthreads();
  Real top[2], factor[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    top[e] = -infinity();
    for (int w = 0; w < WARPS; ++w) top[e] = larger(top[e], shifts[w * 2 * kQueries + 2 * lane.t + e]);
    factor[e] = state.shift[e] == -infinity() ? Real(0) : power(state.shift[e] - top[e]);
  }
  for (int turn = 0; turn < WARPS; ++turn) {  // in the order of the warps: always the same sums
    if (turn == warp) {
#pragma unroll
      for (int i = 0; i < Sums; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int d = place(i);
          if (d < HEAD_DIM) sums[(2 * lane.t + e) * HEAD_DIM + d] += factor[e] * result(i, e);
        }
      }
    }
    __syncthreads();
  }
  const i64 part = (task.batch * a.kv_heads + task.kv_head) * SPLITS + task.split;
  for (int i = threadIdx.x; i < kQueries * HEAD_DIM; i += kThreads) {
    const int column = i / HEAD_DIM, d = i % HEAD_DIM, query = task.query(column);
    if (query >= GROUP) break;
    Real shift = -infinity(), total = 0;
    for (int w = 0; w < WARPS; ++w) shift = larger(shift, shifts[w * 2 * kQueries + column]);
    for (int w = 0; w < WARPS; ++w) {
      const Real own = shifts[w * 2 * kQueries + column];
      total += own == -infinity() ? Real(0) : shifts[(w * 2 + 1) * kQueries + column] * power(own - shift);
    }
    if (SPLITS == 1) {
      Data* out = a.out_data + task.batch * a.out.b + (task.kv_head * GROUP + query) * a.out.h;
      narrow(out + d * a.out.d, total == 0 ? Real(0) : sums[i] / total);
    } else {
      a.parts[(part * GROUP + query) * HEAD_DIM + d] = static_cast<Part>(sums[i]);
      if (d) continue;
      a.stats[(part * 2 + 0) * GROUP + query] = static_cast<Part>(shift);
      a.stats[(part * 2 + 1) * GROUP + query] = static_cast<Part>(total);
    }
  }
}

constexpr int kSharedNumbers = WARPS * 2 * kQueries + kQueries * HEAD_DIM;

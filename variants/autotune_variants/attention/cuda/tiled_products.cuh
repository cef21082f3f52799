// What the passes share: a row task, the two kinds of product, sums over the groups of a block, and stores.
#pragma once
#include "tiled_fragments.cuh"
#if SIMT
#include "tiled_simt.cuh"
#endif
#include "tiled_softmax.cuh"
#include "tiled_sums.cuh"

// One work item: which queries of which head, and the keys they may attend.
struct RowTask {
  i64 batch, head, kv_head, first, rows, keys, vector;
  int chunk;
  __device__ __forceinline__ RowTask(const Args& a, i64 item) {
    const i64 tiles = (a.nq + kBlock - 1) / kBlock;
    chunk = item % kChunks;
    item /= kChunks;
    i64 tile = item % tiles;
    if (CAUSAL) tile = tiles - 1 - tile;  // longest rows first
    head = item / tiles % a.heads;
    batch = item / tiles / a.heads;
    kv_head = head / (a.heads / a.kv_heads);
    first = tile * kBlock;
    rows = min(a.nq - first, static_cast<i64>(kBlock));
    keys = CAUSAL ? max(min(a.nk, first + rows + a.nk - a.nq), 0ll) : a.nk;
    vector = (batch * a.heads + head) * a.nq;
  }
};

// Products along the head that float32 sums in one chain: what a large score is off by, its row's weights are off by.
constexpr int kChain = 4;

// Scores of 16 rows with kTiles * 8 columns: `left(k)` gives the left operand of kAlong columns from kAlong * k on, right rows
// are read along shared rows; `between(k)` is called after each. In float64 s holds the start of the sums; in float32 it is
// overwritten.
template <typename Left, typename Between>
__device__ __forceinline__ void scores(Real (&s)[kTiles][4], const Left& left, unsigned right, const Between& between) {
  Sum<Real> sum[kTiles] = {};
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[j].c[e] = kRounds ? s[j][e] : 0, s[j][e] = 0;
  }
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    const OperandA a = left(k);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) sum[j].add(a, right_along(right, j * 8 * kPitch + k * kAlong * kStored));
    between(k);
    if (!kRounds && k % kChain == kChain - 1 && k + 1 < kDepth) {
#pragma unroll
      for (int i = 0; i < 4 * kTiles; ++i) s[i / 4][i % 4] += sum[i / 4].c[i % 4], sum[i / 4].c[i % 4] = 0;
    }
  }
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[j][e] = kRounds ? sum[j].value(e) : s[j][e] + sum[j].value(e);
  }
}

__device__ __forceinline__ void clear(Real (&s)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kTiles; ++i) s[i / 4][i % 4] = 0;
}

template <typename Left>
__device__ __forceinline__ void scores(Real (&s)[kTiles][4], const Left& left, unsigned right) {
  scores(s, left, right, [](int) {});
}

#if !SIMT
// result += p * rows of a tile, where p is 16 x (kTiles * 8) and `across` the lane's address of the first row.
template <typename R>
__device__ __forceinline__ void accumulate(R (&result)[2 * kGroups][4], const R (&p)[kTiles][4], unsigned across) {
  if constexpr (sizeof(R) == 8) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const Operand<R, 4> a = as_left(p[j]);
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        Operand<R, 2> first, second;
        right_across(across, j * 8 * kPitch + n * 16 * kStored, first, second);
        multiply(result[2 * n], a, first);
        multiply(result[2 * n + 1], a, second);
      }
    }
  } else {
    Operand<R, 4> a[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) a[j] = as_left(p[j]);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      Sum<R> sum[2] = {};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        Operand<R, 2> first, second;
        right_across(across, j * 8 * kPitch + n * 16 * kStored, first, second);
        sum[0].add(a[j], first);
        sum[1].add(a[j], second);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) result[2 * n + i / 4][i % 4] += sum[i / 4].value(i % 4);
    }
  }
}

#endif

// Element e (0..3) of the four neighbouring columns that a lane holds of row half `half` in group n.
#define COLUMN_OF(result, n, half, e) result[2 * (n) + ((e) & 1)][2 * (half) + ((e) >> 1)]

// Sums over the warps that split a row group, in a fixed order, left in the first of them. `space` holds
// (SPLIT_WARPS - 1) * ROW_WARPS * 16 * kChunk values.
__device__ __forceinline__ void add_splits(Real (&result)[2 * kGroups][4], Real* space, int row_warp, int split) {
  if constexpr (SPLIT_WARPS == 1) return;
  constexpr int size = 8 * kGroups * 32;
  const int lane = threadIdx.x & 31;
  if (split > 0) {
#pragma unroll
    for (int i = 0; i < 8 * kGroups; ++i)
      space[((split - 1) * ROW_WARPS + row_warp) * size + i * 32 + lane] = result[i / 4][i % 4];
  }
  __syncthreads();
  if (split == 0) {
    for (int s = 0; s < SPLIT_WARPS - 1; ++s) {
#pragma unroll
      for (int i = 0; i < 8 * kGroups; ++i) result[i / 4][i % 4] += space[(s * ROW_WARPS + row_warp) * size + i * 32 + lane];
    }
  }
  __syncthreads();
}

// Writes the lane's part of 16 rows, times `factor` by row half.
__device__ __forceinline__ void store_rows(const Strides& x, Data* head, i64 row, i64 limit, int chunk, const Lane& lane,
                                           const Real (&result)[2 * kGroups][4], Real top, Real bottom) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 r = row + lane.g + 8 * half;
    if (r >= limit) continue;
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int d = chunk * kChunk + n * 16 + lane.t * 4 + e;
        if (d < HEAD_DIM) head[r * x.n + d * x.d] = narrow(COLUMN_OF(result, n, half, e) * (half ? bottom : top));
      }
    }
  }
}

struct alignas(2 * kSize) Two {
  Real x, y;
};

// Scores or weights of this lane's two rows and a group's share of the keys, to and from device memory.
__device__ __forceinline__ void store_scores(const Args& a, const Real (&s)[kTiles][4], i64 vector, i64 row, i64 key, const Lane& lane) {
  const i64 pitch = score_pitch(a);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Real* line = a.scratch + (vector + row + 8 * half) * pitch + key + 2 * lane.t;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (row + 8 * half < a.nq && key + j * 8 < pitch) *reinterpret_cast<Two*>(line + j * 8) = {s[j][2 * half], s[j][2 * half + 1]};
    }
  }
}

__device__ __forceinline__ void load_scores(const Args& a, Real (&s)[kTiles][4], i64 vector, i64 row, i64 key, const Lane& lane) {
  const i64 pitch = score_pitch(a);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Real* line = a.scratch + (vector + row + 8 * half) * pitch + key + 2 * lane.t;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const bool inside = row + 8 * half < a.nq && key + j * 8 < pitch;
      const Two two = inside ? *reinterpret_cast<const Two*>(line + j * 8) : Two{0, 0};
      s[j][2 * half] = two.x, s[j][2 * half + 1] = two.y;
    }
  }
}

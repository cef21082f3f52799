// Backward over columns: a block owns kBlock keys, streams the queries, and sums GK and GV (optionally adding GQ by
// atomics). The weights follow from the forward's shifts and sums, or are what it has stored; in float64 the accumulators of
// grad_out V^T start at -delta.
#pragma once
#include "tiled_forward.cuh"

// Which keys of which key head, and for each query head of its group the queries from `start` on.
struct ColumnTask {
  i64 batch, kv_head, first, rows, start, steps;
  int chunk;
  __device__ __forceinline__ ColumnTask(const Args& a, i64 item) {
    const i64 tiles = (a.nk + kBlock - 1) / kBlock;
    chunk = item % kChunks;
    item /= kChunks;
    kv_head = item / tiles % a.kv_heads;
    batch = item / tiles / a.kv_heads;
    first = item % tiles * kBlock;  // with a causal mask the first keys have the most queries: longest first
    rows = min(a.nk - first, static_cast<i64>(kBlock));
    start = CAUSAL ? max(first - (a.nk - a.nq), 0ll) / STEP * STEP : 0;
    steps = start < a.nq ? (a.nq - start + STEP - 1) / STEP : 0;
  }
};

// Which queries of which head a step of the column pass streams.
struct Cursor {
  int head, query;
  __device__ __forceinline__ void advance(const ColumnTask& task, const Args& a) {
    query += STEP;
    if (query >= a.nq) query = static_cast<int>(task.start), ++head;
  }
};

constexpr int kScorePitch = (kShare * kSize + 127) / 128 * 128;  // a row of GS^T: a group's queries for one key
constexpr int kVector = kShare * kSize;
constexpr int kStage = 2 * kShare * kPitch + (3 * kVector + 127) / 128 * 128;
constexpr int kScoreTile = ATOMIC_GQ ? kBlock * kScorePitch : 0;
constexpr int kColumnTable = 2 * kBlock * kPitch + SPLIT_WARPS * (STAGES * kStage + kScoreTile);
constexpr int kColumnShared = larger_of(kColumnTable + kTableBytes, kMergeBytes);

#if ATOMIC_GQ
// Adds four neighbouring float32 values of a row; `row` points at the group's first column.
__device__ __forceinline__ void add_four(float* row, i64 stride_d, int d, int t, const float (&value)[4]) {
#if ALIGNED && __CUDA_ARCH__ >= 900 && HEAD_DIM % 4 == 0
  if (d + 4 * t < HEAD_DIM)
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(row + 4 * t), "f"(value[0]), "f"(value[1]), "f"(value[2]),
                 "f"(value[3])
                 : "memory");
#else
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (d + 4 * t + e < HEAD_DIM) atomicAdd(row + (4 * t + e) * stride_d, value[e]);
#endif
}

// GQ += scale * GS K for a group's queries: scale * GS^T lies in shared memory, and its warps share the result. The left
// operand is read across, so logical rows g and g + 8 are queries 2g and 2g + 1 of a tile. In float64 the columns keep
// their natural order, for each addition to touch whole halves of sectors; in float32 a lane adds four neighbours at once.
template <typename R>
__device__ __forceinline__ void add_step_gq(const Args& a, unsigned scores, unsigned keys, R* gq, i64 query, int chunk, const Lane& lane,
                                            int warp) {
  constexpr int row_tiles = kShare < 16 ? 1 : kShare / 16, parts = (ROW_WARPS + row_tiles - 1) / row_tiles;
  constexpr int width = (kGroups + parts - 1) / parts;  // 16-wide groups of a warp
  const unsigned left = scores + 2 * lane.t * kScorePitch + lane.score_across, right = keys;
  const i64 stride_d = ALIGNED ? 1 : a.gq.d;
  for (int unit = warp; unit < row_tiles * parts; unit += ROW_WARPS) {
    const int tile = unit % row_tiles, begin = unit / row_tiles * width;
    if (begin >= kGroups) continue;
    Sum<R> result[2 * width] = {};
    const unsigned tile_left = at(left, tile * 16 * kSize);
    unsigned tile_right[2 * width];
#pragma unroll
    for (int n = 0; n < 2 * width; ++n)
      tile_right[n] = sizeof(R) == 8 ? at(right + lane.natural, (chunk * kChunk + begin * 16 + n * 8) * kStored)
                                     : at(right + lane.across, (chunk * kChunk + (begin + n / 2) * 16) * kStored);
#pragma unroll
    for (int k = 0; k < kBlock / 8; ++k) {
      const Operand<R, 4> s = left_across<kScorePitch>(tile_left, k * 8 * kScorePitch);
#pragma unroll
      for (int n = 0; n < 2 * width; n += 2) {
        if (kGroups % width != 0 && begin + n / 2 >= kGroups) continue;
        Operand<R, 2> first, second;
        if constexpr (sizeof(R) == 8) {
          first = right_natural(tile_right[n], k * 8 * kPitch), second = right_natural(tile_right[n + 1], k * 8 * kPitch);
        } else {
          right_across(tile_right[n], k * 8 * kPitch, first, second);
        }
        result[n].add(s, first);
        result[n + 1].add(s, second);
      }
    }
    const i64 row = query + tile * 16 + 2 * lane.g;
    R* to = gq + row * a.gq.n + (chunk * kChunk + begin * 16) * stride_d;
#pragma unroll
    for (int n = 0; n < 2 * width; ++n) {
      if (kGroups % width != 0 && begin + n / 2 >= kGroups) continue;
      const int d = chunk * kChunk + begin * 16 + n * 8;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row + half >= a.nq) continue;
        R* line = to + half * a.gq.n;
        if constexpr (sizeof(R) == 8) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (HEAD_DIM == kDim || d + 2 * lane.t + e < HEAD_DIM) atomicAdd(line + (n * 8 + 2 * lane.t + e) * stride_d, result[n].value(2 * half + e));
        } else if (n % 2 == 0) {
          const float value[4] = {result[n].value(2 * half), result[n + 1].value(2 * half), result[n].value(2 * half + 1),
                                  result[n + 1].value(2 * half + 1)};
          add_four(line + n * 8 * stride_d, stride_d, d, lane.t, value);
        }
      }
    }
  }
}
#endif

// What the forward has stored, read across: this lane's keys are rows of the transposed tile.
__device__ __forceinline__ void load_scores_across(const Args& a, Real (&s)[kTiles][4], i64 vector, i64 query, i64 key, const Lane& lane) {
  const i64 pitch = score_pitch(a);
  const Real* line = a.scratch + (vector + query + 2 * lane.t) * pitch + key;
  const int rows = static_cast<int>(min(a.nq - query, static_cast<i64>(kShare))) - 2 * lane.t;
#pragma unroll
  for (int j = 0; j < kTiles; ++j, line += 8 * pitch) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      s[j][e] = j * 8 + (e & 1) < rows && key + 8 * (e >> 1) < pitch ? line[(e & 1) * pitch + 8 * (e >> 1)] : Real(0);
  }
}

// Whether an infinite key's scores are infinite, and NaN with the zeros past the last query: three TF32 products have only NaN.
constexpr bool kInfinite = (kSize == 8 || SIMT || STORAGE) && !STORED;

__device__ __forceinline__ void column_pass(const Args& a, i64 item, char* shared) {
  const ColumnTask task(a, item);
  const Lane lane;
  const int warp = threadIdx.x / 32, row_warp = warp % ROW_WARPS, split = warp / ROW_WARPS;
  const unsigned keys = shared_address(shared), values = keys + kBlock * kPitch;
  const unsigned ring = values + kBlock * kPitch + split * (STAGES * kStage + kScoreTile), score_tile = ring + STAGES * kStage;
  const i64 group = a.heads / a.kv_heads;
  const int steps = static_cast<int>(task.steps * group);
  const Real scale = Real(fabs(a.scale)), c = exponent_factor(a.scale, Real());  // the keys in shared memory have its sign

  BlockCopy(keys, head_of(a.k_data, a.k, task.batch, task.kv_head), a.k.n, a.k.d, task.first, a.nk).all();
  BlockCopy(values, head_of(a.v_data, a.v, task.batch, task.kv_head), a.v.n, a.v.d, task.first, a.nk).all();
  Cursor now{static_cast<int>(task.kv_head * group), static_cast<int>(task.start)}, next = now;
  const auto stage_of = [&](int step) { return ring + slot_of(step) * kStage; };
  const auto queries_of = [&](int step, const Cursor& at) {
    return ShareCopy(stage_of(step), head_of(a.q_data, a.q, task.batch, at.head), a.q.n, a.q.d, at.query + split * kShare,
                     step < steps ? a.nq : 0);
  };
  const auto grads_of = [&](int step, const Cursor& at) {
    return ShareCopy(stage_of(step) + kShare * kPitch, head_of(a.grad_out_data, a.grad_out, task.batch, at.head), a.grad_out.n, a.grad_out.d,
                     at.query + split * kShare, step < steps ? a.nq : 0);
  };
  const auto vectors_of = [&](int step, const Cursor& at) {
    const i64 vector = (task.batch * a.heads + at.head) * a.nq, limit = step < steps ? a.nq : 0;
    const unsigned to = stage_of(step) + 2 * kShare * kPitch;
    if (!kStoreWeights) load_vector(to, a.shift + vector, at.query + split * kShare, limit);
    load_vector(to + kVector, a.inverse + vector, at.query + split * kShare, limit);
    load_vector(to + 2 * kVector, a.delta + vector, at.query + split * kShare, limit);
  };
  if (STAGES > 1) queries_of(0, next).all(), grads_of(0, next).all();
  const unsigned table = keys + kColumnTable;
  if (!kStoreWeights) fill_table(table);
  wait_for_previous();
  if (STAGES > 1) {
    vectors_of(0, next);
    next.advance(task, a);
  }
  commit_copies();

  wait_copies();
  __syncthreads();
  negate_owned(keys, a.scale);

  Real gk[2 * kGroups][4] = {}, gv[2 * kGroups][4] = {};
  MovedSums<Real> moved_gk, moved_gv;
  Real p[kTiles][4];  // P^T: rows are keys, columns are queries
  const i64 key = task.first + row_warp * 16 + lane.g;
  const auto scores_of = [&](const Cursor& at) {
    load_scores_across(a, p, (task.batch * a.heads + at.head) * a.nq, at.query + split * kShare, key, lane);
  };
  if (STORED && steps) scores_of(now);
  for (int step = 0; step < steps; ++step, now.advance(task, a)) {
    moved_gk.before(step, gk), moved_gv.before(step, gv);
    if (STAGES == 1) {
      sync_group();
      queries_of(step, now).all(), grads_of(step, now).all(), vectors_of(step, now);
      commit_copies();
    }
    wait_copies();
    sync_group();
    const ShareCopy next_queries = queries_of(step + 1, next), next_grads = grads_of(step + 1, next);
    if (STAGES > 1) {
      if (!SPREAD_COPIES) next_queries.all(), next_grads.all();
      vectors_of(step + 1, next);
      if (!SPREAD_COPIES) commit_copies();
      next.advance(task, a);
    }
    Cursor following = now;
    following.advance(task, a);
    const int query = now.query + split * kShare;
    const unsigned queries = stage_of(step), grads = queries + kShare * kPitch, vectors = grads + kShare * kPitch;

    const unsigned key_rows = keys + row_warp * 16 * kPitch + lane.along, value_rows = key_rows + kBlock * kPitch;
    if constexpr (!STORED) {
      clear(p);
      scores(p, [&](int i) { return left_along(key_rows, i * kAlong * kStored); }, queries + lane.right, [&](int i) {
        if (STAGES > 1 && SPREAD_COPIES) copy_part(next_queries, next_grads, i, kDepth);
      });
      if (STAGES > 1 && SPREAD_COPIES) commit_copies();
    }
    const bool masked = task.rows < kBlock || (kInfinite && query + kShare > a.nq) || (CAUSAL && task.first + kBlock - 1 > query + a.nk - a.nq);
    if constexpr (!kStoreWeights) {
      weigh(p, c, table, [&](int j, int e) {
        const Pair shift = load_pair(vectors + (j * 8 + 2 * lane.t) * kSize);
        return bias_of(e & 1 ? shift.y : shift.x);
      });
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const Pair inverse = load_pair(vectors + kVector + (j * 8 + 2 * lane.t) * kSize);
#pragma unroll
      for (int e = 0; e < 4; ++e) p[j][e] *= e & 1 ? inverse.y : inverse.x;
    }
    if (masked) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const i64 row = query + j * 8 + 2 * lane.t + (e & 1), column = key + 8 * (e >> 1);
          if (column >= a.nk || (kInfinite && row >= a.nq) || (CAUSAL && column > row + a.nk - a.nq)) p[j][e] = 0;
        }
      }
    }
    keep_nan(p);
    accumulate(gv, p, grads + task.chunk * kChunk * kStored + lane.across);

    Real s[kTiles][4];  // GS^T without the scale
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const Pair delta = load_pair(vectors + 2 * kVector + (j * 8 + 2 * lane.t) * kSize);
      s[j][0] = s[j][2] = -delta.x, s[j][1] = s[j][3] = -delta.y;
    }
    scores(s, [&](int i) { return left_along(value_rows, i * kAlong * kStored); }, grads + lane.right);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const Pair delta = load_pair(vectors + 2 * kVector + (j * 8 + 2 * lane.t) * kSize);
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = p[j][e] * (kRounds ? s[j][e] : s[j][e] - (e & 1 ? delta.y : delta.x));
    }
    if (ATOMIC_GQ) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const unsigned offset = (j * 8 + 2 * lane.t) * kSize, row = row_warp * 16 + lane.g;
        const unsigned place = score_tile + row * kScorePitch + (offset ^ (swizzle_of<kSize>(lane.g) << 4));
        store_two(place, s[j][0] * scale, s[j][1] * scale);
        store_two(place + 8 * kScorePitch, s[j][2] * scale, s[j][3] * scale);
      }
    }
    if (STORED && step + 1 < steps) scores_of(following);
    keep_nan(s);
    accumulate(gk, s, queries + task.chunk * kChunk * kStored + lane.across);
#if ATOMIC_GQ
    sync_group();
    add_step_gq(a, score_tile, keys, head_of(a.gq_data, a.gq, task.batch, now.head), query, task.chunk, lane, row_warp);
#endif
  }
  moved_gk.join(gk), moved_gv.join(gv);
  wait_copies();
  __syncthreads();
  Real* space = reinterpret_cast<Real*>(shared);
  add_splits(gk, space, row_warp, split);
  add_splits(gv, space, row_warp, split);
  if (split == 0) {
    const i64 row = task.first + row_warp * 16;
    Data* gk_head = head_of(a.gk_data, a.gk, task.batch, task.kv_head);
    Data* gv_head = head_of(a.gv_data, a.gv, task.batch, task.kv_head);
    store_rows(a.gk, gk_head, row, a.nk, task.chunk, lane, gk, Real(a.scale), Real(a.scale));
    store_rows(a.gv, gv_head, row, a.nk, task.chunk, lane, gv, Real(1), Real(1));
  }
}

// 16-bit: products m16n8k16 of 16 keys (or 16 columns of V) by 8 queries; keys and values go from memory to registers as
// the products want them, since the order of a sum over columns or keys is free.
#pragma once
#include "base.cuh"

constexpr int kKeys = 16;  // of a tile
constexpr int kSums = kValueSteps * 8;

struct Keys {
  uint4 row[kKeySteps][2];  // keys g and g + 8, units 4 i + t
  __device__ __forceinline__ void load(const Args& a, const Data* k, i64 key, i64 last, const Lane& lane) {
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const i64 own = key + lane.g + 8 * half;
        row[i][half] = load_unit(k + own * a.k.n, a.k.d, 4 * i + lane.t, own < last).bits;
      }
    }
  }
};

struct Values {
  uint4 row[kValueSteps][4];  // keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9, units 8 i + g
  __device__ __forceinline__ void load(const Args& a, const Data* v, i64 key, i64 last, const Lane& lane) {
#pragma unroll
    for (int i = 0; i < kValueSteps; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const i64 own = key + 2 * lane.t + (r & 1) + 8 * (r >> 1);
        row[i][r] = load_unit(v + own * a.v.n, a.v.d, 8 * i + lane.g, own < last).bits;
      }
    }
  }
};

__device__ __forceinline__ unsigned word(const uint4& x, int i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }

__device__ __forceinline__ void attend(const Args& a, float* shared) {
  const Task task(a);
  const Lane lane;
  const int warp = threadIdx.x / 32, query = task.query(lane.g);
  const Data* k = a.k_data + task.batch * a.k.b + task.kv_head * a.k.h;
  const Data* v = a.v_data + task.batch * a.v.b + task.kv_head * a.v.h;
  const Data* q = a.q_data + task.batch * a.q.b + (task.kv_head * GROUP + query) * a.q.h;
  const float c = static_cast<float>(a.scale * 1.4426950408889634);

  uint4 held[kKeySteps];
#pragma unroll
  for (int i = 0; i < kKeySteps; ++i) held[i] = load_unit(q, a.q.d, 4 * i + lane.t, query < GROUP).bits;
  float result[kValueSteps * 4][4] = {};
  State state;
  Keys keys;
  Values values;
  i64 key = task.first + warp * kKeys;
  keys.load(a, k, key, task.last, lane);
  values.load(a, v, key, task.last, lane);
  for (; key < task.last; key += WARPS * kKeys) {
    float s[4] = {};
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      multiply(s, keys.row[i][0].x, keys.row[i][1].x, keys.row[i][0].y, keys.row[i][1].y, held[i].x, held[i].y);
      multiply(s, keys.row[i][0].z, keys.row[i][1].z, keys.row[i][0].w, keys.row[i][1].w, held[i].z, held[i].w);
    }
    const i64 next = key + WARPS * kKeys;
    keys.load(a, k, next, task.last, lane);
    // s: keys g (0, 1) and g + 8 (2, 3) by queries 2 t (0, 2) and 2 t + 1 (1, 3)
    bool outgrown = false;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[e] = key + lane.g + 8 * (e >> 1) < task.last ? s[e] * c : -infinity();
      outgrown |= s[e] > state.shift[e & 1] + kOutgrown;
    }
    if (__any_sync(~0u, outgrown)) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float factor = moved(state.shift[e], larger(s[e], s[e + 2]));
        state.sum[e] *= factor;
#pragma unroll
        for (int i = 0; i < kValueSteps * 4; ++i) result[i][e] *= factor, result[i][e + 2] *= factor;
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[e] = weight(s[e], state.shift[e & 1]);
      state.sum[e & 1] += s[e];
    }
    const unsigned low = transposed(packed(s[0], s[1])), high = transposed(packed(s[2], s[3]));
#pragma unroll
    for (int i = 0; i < kValueSteps; ++i) {
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const unsigned v0 = word(values.row[i][0], m), v1 = word(values.row[i][1], m);
        const unsigned v2 = word(values.row[i][2], m), v3 = word(values.row[i][3], m);
        multiply(result[4 * i + m], __byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632), __byte_perm(v2, v3, 0x5410),
                 __byte_perm(v2, v3, 0x7632), low, high);
      }
    }
    values.load(a, v, next, task.last, lane);
  }
  state.sum[0] = over_keys_sum(state.sum[0]), state.sum[1] = over_keys_sum(state.sum[1]);
  // result[4 i + m]: columns 8 (8 i + g) + 2 m (0, 1) and one more (2, 3), by queries 2 t and 2 t + 1
  finish<kSums>(
      a, task, state, shared, [&](int i, int e) { return result[i / 2][2 * (i & 1) + e]; },
      [&](int i) { return 8 * (8 * (i / 8) + lane.g) + 2 * (i / 2 % 4) + (i & 1); });
}

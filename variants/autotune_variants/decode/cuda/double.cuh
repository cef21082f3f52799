// float64, and float32 in float64 arithmetic: products m8n8k4 of 8 keys (or 8 columns of V) by 8 queries.
#pragma once
#include "base.cuh"

constexpr int kKeys = 8;  // of a tile
constexpr int kSums = kValueSteps * kUnit;

__device__ __forceinline__ double element(const uint4& x, int e) {
#if STORAGE == 0
  return e ? __hiloint2double(static_cast<int>(x.w), static_cast<int>(x.z)) : __hiloint2double(static_cast<int>(x.y), static_cast<int>(x.x));
#else
  return __uint_as_float(e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w);
#endif
}

struct Keys {
  uint4 row[kKeySteps];  // key g, units 4 i + t
  __device__ __forceinline__ void load(const Args& a, const Data* k, i64 key, i64 last, const Lane& lane) {
    const i64 own = key + lane.g;
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) row[i] = load_unit(k + own * a.k.n, a.k.d, 4 * i + lane.t, own < last).bits;
  }
};

struct Values {
  uint4 row[kValueSteps][2];  // keys t and t + 4, units 8 i + g
  __device__ __forceinline__ void load(const Args& a, const Data* v, i64 key, i64 last, const Lane& lane) {
#pragma unroll
    for (int i = 0; i < kValueSteps; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const i64 own = key + lane.t + 4 * half;
        row[i][half] = load_unit(v + own * a.v.n, a.v.d, 8 * i + lane.g, own < last).bits;
      }
    }
  }
};

__device__ __forceinline__ void attend(const Args& a, double* shared) {
  const Task task(a);
  const Lane lane;
  const int warp = threadIdx.x / 32, query = task.query(lane.g);
  const Data* k = a.k_data + task.batch * a.k.b + task.kv_head * a.k.h;
  const Data* v = a.v_data + task.batch * a.v.b + task.kv_head * a.v.h;
  const Data* q = a.q_data + task.batch * a.q.b + (task.kv_head * GROUP + query) * a.q.h;
  const double c = a.scale * 1.4426950408889634;

  uint4 held[kKeySteps];
#pragma unroll
  for (int i = 0; i < kKeySteps; ++i) held[i] = load_unit(q, a.q.d, 4 * i + lane.t, query < GROUP).bits;
  double result[kSums][2] = {};
  State state;
  Keys keys;
  Values values;
  i64 key = task.first + warp * kKeys;
  keys.load(a, k, key, task.last, lane);
  values.load(a, v, key, task.last, lane);
  for (; key < task.last; key += WARPS * kKeys) {
    double even[2] = {}, odd[2] = {};  // two chains: a product takes long
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
#pragma unroll
      for (int e = 0; e < kUnit; ++e) multiply(e & 1 ? odd : even, element(keys.row[i], e), element(held[i], e));
    }
    const i64 next = key + WARPS * kKeys;
    keys.load(a, k, next, task.last, lane);
    double s[2];  // key g by queries 2 t and 2 t + 1
    bool outgrown = false;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[e] = key + lane.g < task.last ? (even[e] + odd[e]) * c : -infinity();
      outgrown |= s[e] > state.shift[e] + kOutgrown;
    }
    if (__any_sync(~0u, outgrown)) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const double factor = moved(state.shift[e], s[e]);
        state.sum[e] *= factor;
#pragma unroll
        for (int i = 0; i < kSums; ++i) result[i][e] *= factor;
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[e] = weight(s[e], state.shift[e]);
      state.sum[e] += s[e];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // keys 4 half + t, each of query g
      const int source = (4 * half + lane.t) * 4 + lane.g / 2;
      const double first = __shfl_sync(~0u, s[0], source), second = __shfl_sync(~0u, s[1], source);
      const double own = lane.g & 1 ? second : first;
#pragma unroll
      for (int i = 0; i < kValueSteps; ++i) {
#pragma unroll
        for (int e = 0; e < kUnit; ++e) multiply(result[kUnit * i + e], element(values.row[i][half], e), own);
      }
    }
    values.load(a, v, next, task.last, lane);
  }
  state.sum[0] = over_keys_sum(state.sum[0]), state.sum[1] = over_keys_sum(state.sum[1]);
  // result[kUnit i + m]: column kUnit (8 i + g) + m by queries 2 t and 2 t + 1
  finish<kSums>(
      a, task, state, shared, [&](int i, int e) { return result[i][e]; },
      [&](int i) { return kUnit * (8 * (i / kUnit) + lane.g) + i % kUnit; });
}

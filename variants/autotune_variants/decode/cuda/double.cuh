// float64, and float32 in float64 arithmetic: products m8n8k4 of 8 keys (or 8 columns of V) by 8 queries.
#pragma once
#include "base.cuh"

constexpr int kKeys = 8;  // of a tile
__device__ __forceinline__ int value_row(const Lane& lane, int r) { return lane.t + 4 * r; }

#include "finish.cuh"
#include "stream.cuh"

__device__ __forceinline__ double element(const uint4& x, int e) {
#if STORAGE == 0
  return e ? __hiloint2double(static_cast<int>(x.w), static_cast<int>(x.z)) : __hiloint2double(static_cast<int>(x.y), static_cast<int>(x.x));
#else
  return __uint_as_float(e == 0 ? x.x : e == 1 ? x.y : e == 2 ? x.z : x.w);
#endif
}

__device__ __forceinline__ void attend(const Args& a, unsigned char* shared) {
  const Task task(a);
  const Lane lane;
  const int query = task.query(lane.g);
  const Data* q = a.q_data + task.batch * a.q.b + (task.kv_head * GROUP + query) * a.q.h;
  const double c = a.scale * 1.4426950408889634;

  Stream stream(a, task, shared + kInboxBytes);
  uint4 held[kKeySteps];
#pragma unroll
  for (int i = 0; i < kKeySteps; ++i) held[i] = load_unit(q, a.q.d, 4 * i + lane.t, query < GROUP).bits;
  double result[kSums][2] = {};
  State state;
  for (int key = threadIdx.x / 32 * kKeys; key < task.count; key += kStep) {
    stream.arrive();
    double even[2] = {}, odd[2] = {};  // two chains: a product takes long
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      const uint4 own = stream.key(i, 0);
#pragma unroll
      for (int e = 0; e < kUnit; ++e) multiply(e & 1 ? odd : even, element(own, e), element(held[i], e));
    }
    stream.keys_done();
    double s[2];  // key g by queries 2 t and 2 t + 1
    bool outgrown = false;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      s[e] = key + lane.g < task.count ? (even[e] + odd[e]) * c : -infinity();
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
        const uint4 row = stream.value(i, half);
#pragma unroll
        for (int e = 0; e < kUnit; ++e) multiply(result[kUnit * i + e], element(row, e), own);
      }
    }
    stream.values_done();
  }
  state.sum[0] = over_keys_sum(state.sum[0]), state.sum[1] = over_keys_sum(state.sum[1]);
  // result[kUnit i + m]: column kUnit (8 i + g) + m by queries 2 t and 2 t + 1
  finish(a, task, state, shared, [&](int i, int e) { return result[i][e]; });
}

// 16-bit: products m16n8k16 of 16 keys (or 16 columns of V) by 8 queries; keys and values reach the registers as the
// products want them, since the order of a sum over columns or keys is free.
#pragma once
#include "base.cuh"

constexpr int kKeys = 16;  // of a tile
__device__ __forceinline__ int value_row(const Lane& lane, int r) { return 2 * lane.t + (r & 1) + 8 * (r >> 1); }

#include "finish.cuh"
#include "stream.cuh"

__device__ __forceinline__ unsigned word(const uint4& x, int i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }

__device__ __forceinline__ void attend(const Args& a, unsigned char* shared) {
  const Task task(a);
  const Lane lane;
  const int query = task.query(lane.g);
  const Data* q = a.q_data + task.batch * a.q.b + (task.kv_head * GROUP + query) * a.q.h;
  const float c = static_cast<float>(a.scale * 1.4426950408889634);

  Stream stream(a, task, shared + kInboxBytes);
  uint4 held[kKeySteps];
#pragma unroll
  for (int i = 0; i < kKeySteps; ++i) held[i] = load_unit(q, a.q.d, 4 * i + lane.t, query < GROUP).bits;
  float result[kValueSteps * 4][4] = {};
  State state;
  for (int key = threadIdx.x / 32 * kKeys; key < task.count; key += kStep) {
    stream.arrive();
    float s[4] = {};
#pragma unroll
    for (int i = 0; i < kKeySteps; ++i) {
      const uint4 upper = stream.key(i, 0), lower = stream.key(i, 1);
      multiply(s, upper.x, lower.x, upper.y, lower.y, held[i].x, held[i].y);
      multiply(s, upper.z, lower.z, upper.w, lower.w, held[i].z, held[i].w);
    }
    stream.keys_done();
    // s: keys g (0, 1) and g + 8 (2, 3) by queries 2 t (0, 2) and 2 t + 1 (1, 3)
    bool outgrown = false;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[e] = key + lane.g + 8 * (e >> 1) < task.count ? s[e] * c : -infinity();
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
      const uint4 rows[4] = {stream.value(i, 0), stream.value(i, 1), stream.value(i, 2), stream.value(i, 3)};
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const unsigned v0 = word(rows[0], m), v1 = word(rows[1], m), v2 = word(rows[2], m), v3 = word(rows[3], m);
        multiply(result[4 * i + m], __byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632), __byte_perm(v2, v3, 0x5410),
                 __byte_perm(v2, v3, 0x7632), low, high);
      }
    }
    stream.values_done();
  }
  state.sum[0] = over_keys_sum(state.sum[0]), state.sum[1] = over_keys_sum(state.sum[1]);
  // result[4 i + m]: columns 8 (8 i + g) + 2 m (0, 1) and one more (2, 3), by queries 2 t and 2 t + 1
  finish(a, task, state, shared, [&](int i, int e) { return result[i / 2][2 * (i & 1) + e]; });
}

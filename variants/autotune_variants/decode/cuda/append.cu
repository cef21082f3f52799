// kv_append: one row of keys and values of every head, into the cache where it lies.
#include "../../cuda/elements.cuh"

typedef long long i64;

struct Strides {
  i64 b, h, n, d;  // in elements
};

struct Args {
  Data *keys, *values;
  const Data *key, *value;
  double position;
  i64 batch, heads, d, dv;
  Strides keys_strides, values_strides, key_strides, value_strides;
};

__device__ __forceinline__ void copy(Data* to, const Strides& t, const Data* from, const Strides& f, i64 batch, i64 head, i64 row, i64 d) {
  to[batch * t.b + head * t.h + row * t.n + d * t.d] = from[batch * f.b + head * f.h + d * f.d];
}

extern "C" __global__ void append_row(const __grid_constant__ Args a) {
  i64 item = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x;
  const i64 width = a.d + a.dv, d = item % width, row = static_cast<i64>(a.position);
  item /= width;
  if (item >= a.batch * a.heads) return;
  const i64 head = item % a.heads, batch = item / a.heads;
  if (d < a.d) {
    copy(a.keys, a.keys_strides, a.key, a.key_strides, batch, head, row, d);
  } else {
    copy(a.values, a.values_strides, a.value, a.value_strides, batch, head, row, d - a.d);
  }
}

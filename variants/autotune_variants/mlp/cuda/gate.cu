// What the gated MLP does between products of whole matrices: one pass over the hidden activations, in place.
#ifndef STORAGE
#define STORAGE 0   // tensors hold 0: double, 1: bfloat16, 2: float16, 3: float
#endif
#ifndef THREADS
#define THREADS 256
#endif

typedef long long i64;

#if STORAGE == 0
typedef double Data, Real;
#elif STORAGE == 3
typedef float Data, Real;
#else
typedef unsigned short Data;
typedef float Real;
#endif

struct Args {
  Data *u, *v, *grad_h;     // [rows, columns]
  i64 rows, columns, step;  // rows of u and v are `step` apart, those of grad_h lie one after the other
};

#include "instructions.cuh"
#include "activation.cuh"

constexpr int kVector = 16 / sizeof(Data);

struct __align__(16) Vector {
  Data element[kVector];
};

// A thread's neighbouring elements of a row.
struct Part {
  i64 uv, h;  // where they start
  int count;  // 0 behind the end
  bool whole;
  __device__ __forceinline__ explicit Part(const Args& a) {
    const i64 across = (a.columns + kVector - 1) / kVector, i = blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x;
    const i64 row = i / across, column = i % across * kVector;
    uv = row * a.step + column, h = row * a.columns + column;
    count = row < a.rows ? static_cast<int>(min(a.columns - column, static_cast<i64>(kVector))) : 0;
    whole = count == kVector && a.columns % kVector == 0 && a.step % kVector == 0;
  }
};

__device__ __forceinline__ Vector load(const Data* from, const Part& p) {
  if (p.whole) return *reinterpret_cast<const Vector*>(from);
  Vector found = {};
  for (int e = 0; e < p.count; ++e) found.element[e] = from[e];
  return found;
}

__device__ __forceinline__ void store(Data* to, const Part& p, const Vector& made) {
  if (p.whole) {
    *reinterpret_cast<Vector*>(to) = made;
    return;
  }
  for (int e = 0; e < p.count; ++e) to[e] = made.element[e];
}

// u becomes h = u sigmoid(u) v.
extern "C" __global__ void __launch_bounds__(THREADS) gate(const __grid_constant__ Args a) {
  const Part p(a);
  if (!p.count) return;
  Vector u = load(a.u + p.uv, p);
  const Vector v = load(a.v + p.uv, p);
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const Real x = wide(u.element[e]);
    u.element[e] = narrow(x * sigmoid(x) * wide(v.element[e]));
  }
  store(a.u + p.uv, p, u);
}

// u and v become their gradients, grad_h becomes h.
extern "C" __global__ void __launch_bounds__(THREADS) gate_gradients(const __grid_constant__ Args a) {
  const Part p(a);
  if (!p.count) return;
  Vector u = load(a.u + p.uv, p), v = load(a.v + p.uv, p), g = load(a.grad_h + p.h, p);
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const Gated<Real> found = gated(wide(u.element[e]), wide(v.element[e]), wide(g.element[e]));
    u.element[e] = narrow(found.grad_u), v.element[e] = narrow(found.grad_v), g.element[e] = narrow(found.h);
  }
  store(a.u + p.uv, p, u);
  store(a.v + p.uv, p, v);
  store(a.grad_h + p.h, p, g);
}

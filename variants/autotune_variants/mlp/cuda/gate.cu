// What the gated MLP does between products of whole matrices: one pass over the hidden activations, in place.
#ifndef THREADS
#define THREADS 256
#endif

#include "../../cuda/storage.cuh"

typedef long long i64;

struct Args {
  Data *u, *v, *grad_h;  // [elements], contiguous
  i64 elements;
};

#include "activation.cuh"

constexpr int kVector = 16 / sizeof(Data);

struct __align__(16) Vector {
  Data element[kVector];
};

__device__ __forceinline__ i64 first_of() { return (blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x) * kVector; }

__device__ __forceinline__ Vector load(const Data* from, i64 first, i64 elements) {
  Vector found = {};
  if (first + kVector <= elements) return *reinterpret_cast<const Vector*>(from + first);
  for (int e = 0; e < kVector; ++e) {
    if (first + e < elements) found.element[e] = from[first + e];
  }
  return found;
}

__device__ __forceinline__ void store(Data* to, i64 first, i64 elements, const Vector& made) {
  if (first + kVector <= elements) {
    *reinterpret_cast<Vector*>(to + first) = made;
    return;
  }
  for (int e = 0; e < kVector; ++e) {
    if (first + e < elements) to[first + e] = made.element[e];
  }
}

// u becomes h = u sigmoid(u) v.
extern "C" __global__ void __launch_bounds__(THREADS) gate(const __grid_constant__ Args a) {
  const i64 first = first_of();
  if (first >= a.elements) return;
  Vector u = load(a.u, first, a.elements);
  const Vector v = load(a.v, first, a.elements);
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const Real x = wide(u.element[e]);
    u.element[e] = narrow(x * sigmoid(x) * wide(v.element[e]));
  }
  store(a.u, first, a.elements, u);
}

// u and v become their gradients, grad_h becomes h.
extern "C" __global__ void __launch_bounds__(THREADS) gate_gradients(const __grid_constant__ Args a) {
  const i64 first = first_of();
  if (first >= a.elements) return;
  Vector u = load(a.u, first, a.elements), v = load(a.v, first, a.elements), g = load(a.grad_h, first, a.elements);
#pragma unroll
  for (int e = 0; e < kVector; ++e) {
    const Gated<Real> found = gated(wide(u.element[e]), wide(v.element[e]), wide(g.element[e]));
    u.element[e] = narrow(found.grad_u), v.element[e] = narrow(found.grad_v), g.element[e] = narrow(found.h);
  }
  store(a.u, first, a.elements, u);
  store(a.v, first, a.elements, v);
  store(a.grad_h, first, a.elements, g);
}

// Results summed over so many streamed rows that one chain of additions would lose digits.
#pragma once
#include "tiled_fragments.cuh"

// A sum of n terms in one chain is off by about sqrt(n) roundings. In float64 it is moved to local memory once in kMoved
// rows: shorter chains would need additions in every step, on the unit that the products keep busy, and registers for a
// second set of sums there are none. In float32 every step is summed apart as it is, and there is nothing to do.
constexpr int kMoved = 512;

template <typename R>
struct MovedSums {
  __device__ __forceinline__ void before(int, R (&)[2 * kGroups][4]) {}
  __device__ __forceinline__ void scale(int, R) {}
  __device__ __forceinline__ void join(R (&)[2 * kGroups][4]) const {}
};

template <>
struct MovedSums<double> {
  static constexpr int kSteps = kMoved / kShare;
  alignas(16) double sums[8 * kGroups];
  bool any = false;

  __device__ __forceinline__ unsigned place(int n, int half) const {
    return static_cast<unsigned>(__cvta_generic_to_local(sums)) + (4 * n + 2 * half) * 8;
  }
  __device__ __forceinline__ double2 get(int n, int half) const {
    double2 two;
    asm volatile("ld.local.v2.f64 {%0, %1}, [%2];" : "=d"(two.x), "=d"(two.y) : "r"(place(n, half)) : "memory");
    return two;
  }
  __device__ __forceinline__ void put(int n, int half, double x, double y) {
    asm volatile("st.local.v2.f64 [%0], {%1, %2};" ::"r"(place(n, half)), "d"(x), "d"(y) : "memory");
  }

  // Moves `result` here if this step is due to.
  __device__ __forceinline__ void before(int step, double (&result)[2 * kGroups][4]) {
    if (step == 0 || step % kSteps != 0) return;
    join(result);
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        put(n, half, result[n][2 * half], result[n][2 * half + 1]);
        result[n][2 * half] = result[n][2 * half + 1] = 0;
      }
    }
    any = true;
  }

  // Multiplies the sums of a row half.
  __device__ __forceinline__ void scale(int half, double factor) {
    if (!any) return;
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) {
      const double2 two = get(n, half);
      put(n, half, two.x * factor, two.y * factor);
    }
  }

  // Adds what was moved to `result`.
  __device__ __forceinline__ void join(double (&result)[2 * kGroups][4]) const {
    if (!any) return;
#pragma unroll
    for (int n = 0; n < 2 * kGroups; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const double2 two = get(n, half);
        result[n][2 * half] += two.x, result[n][2 * half + 1] += two.y;
      }
    }
  }
};

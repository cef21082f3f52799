// What every tiled kernel takes. Pointers and scale come first: they change from call to call, the rest hardly ever.
#pragma once
#include "../../cuda/copies.cuh"
#include "../../cuda/dependent.cuh"

typedef long long i64;

struct Strides {
  i64 b, h, n, d;  // in elements
};

template <typename Data, typename Real, typename Scratch>
struct Arguments {
  Data *q_data, *k_data, *v_data, *out_data, *grad_out_data, *gq_data, *gk_data, *gv_data;
  Real* lse;         // [B, H, Nq], natural logarithm; strided, and null where nobody wants it
  Real* delta;       // [B, H, Nq], packed as all below: sum over d of grad_out * out
  Real* shift;       // [B, H, Nq]: weights are 2^(score * |scale| * log2 e - shift) * inverse; lse
  Real* inverse;     // [B, H, Nq]  alone would lose digits where scores are large; in 16 bits it does (inverse = 1)
  Scratch* scratch;  // what a family of kernels keeps besides
  float* measures;   // of whole heads: magnitudes, norms
  double scale;
  i64 batch, heads, kv_heads, nq, nk;
  Strides q, k, v, out, grad_out, gq, gk, gv, lse_strides;
};

template <typename Data>
__device__ __forceinline__ Data* head_of(Data* data, const Strides& x, i64 batch, i64 head) {
  return data + batch * x.b + head * x.h;
}

template <typename Args>
__device__ __forceinline__ auto& lse_of(const Args& a, i64 batch, i64 head, i64 n) {
  return a.lse[batch * a.lse_strides.b + head * a.lse_strides.h + n * a.lse_strides.n];
}

constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;

// The factor from scores to exponents of two. Its sign is in the operands (a block negates the rows it owns), so that
// the largest score has the largest weight; it is never zero, for a masked score (-inf) to stay one.
__device__ __forceinline__ float exponent_factor(double scale, float) { return fmaxf(static_cast<float>(fabs(scale) * kLog2e), 1e-37f); }
__device__ __forceinline__ double exponent_factor(double scale, double) { return fmax(fabs(scale) * kLog2e, 1e-300); }

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// `bytes` of 16 are read, the rest becomes zero; with 0 bytes the address is never touched.
__device__ __forceinline__ void copy_async_16(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
template <int Bytes>
__device__ __forceinline__ void copy_async_small(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Bytes), "r"(bytes));
}

// Flips signs of `bytes` at `tile`: those of every number of Size bytes (2, 4 or 8), by all `Threads` threads. Where the scale
// is NaN so are they: a maximum would drop it, and a factor would spoil masked scores. The low word of float64 stays 0, which
// the exponential reads as an integer.
template <int Size, int Threads>
__device__ __forceinline__ void negate_tile(unsigned tile, int bytes, double scale) {
  const unsigned keep = scale < 0 ? ~0u : 0u, set = !(scale < 0) ? 0x7ff87ff8u : Size == 2 ? 0x80008000u : 0x80000000u;
  for (int i = threadIdx.x * 8; i < bytes; i += Threads * 8) {
    unsigned low, high;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(tile + i));
    low = (low & keep) ^ (Size < 8 ? set : 0u), high = (high & keep) ^ set;
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(tile + i), "r"(low), "r"(high) : "memory");
  }
}

// Over the four lanes that hold a row of a product.
template <typename R>
__device__ __forceinline__ R quad_sum(R x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ float exp2_fast(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

// What C++ has no words for: asynchronous copies, and products on the matrix units.
#pragma once
#include "../../cuda/copies.cuh"

// `Bytes` (4, 8 or 16) from global to shared memory; zeros where not `inside`, and then nothing is read.
template <int Bytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(Bytes), "r"(inside ? Bytes : 0) : "memory");
}

// c += a b, 16x8 by 4 rows of b: a[g, t], a[g + 8, t]; b[t, g] for lane 4 g + t.
__device__ __forceinline__ void multiply_double(double (&c)[4], double top, double bottom, double b) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(top), "d"(bottom), "d"(b));
#else
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c[0]), "+d"(c[1]) : "d"(top), "d"(b));
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c[2]), "+d"(c[3]) : "d"(bottom), "d"(b));
#endif
}

// c += a b, 16x8 by 8 rows of b, of TF32 numbers: a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4]; b[t, g], b[t + 4, g].
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two float32 numbers as neighbouring float16 ones, and one of those as float32.
__device__ __forceinline__ unsigned pack_halves(float low, float high) {
  unsigned y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ __forceinline__ float unpack_half(unsigned bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(static_cast<unsigned short>(bits)));
  return y;
}

// Four tiles of 8 by 8 halves, whose rows start where lanes 8 i to 8 i + 7 say: lane 4 g + t gets elements 2t and 2t + 1 of
// row g, or of column g.
template <bool Columns>
__device__ __forceinline__ void load_halves(unsigned (&x)[4], const void* row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (Columns) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address));
  }
}

// c += a b, 16x8 by 16 rows of b, of float16 numbers: a[g, 2t], a[g + 8, 2t], a[g, 2t + 8], a[g + 8, 2t + 8] and their
// neighbours; b[2t, g], b[2t + 8, g] and those below.
__device__ __forceinline__ void multiply_half(float (&c)[4], const unsigned (&a)[4], unsigned top, unsigned bottom) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(top), "r"(bottom));
}

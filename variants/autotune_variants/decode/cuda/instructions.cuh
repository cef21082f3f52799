// What is written in PTX or left to the compiler's own functions; everything else is plain C++.
#pragma once

#if STORAGE == 0
__device__ __forceinline__ Real power(Real x) { return exp2(x); }
__device__ __forceinline__ void narrow(Data* to, Real x) { *to = x; }
#elif STORAGE == 3
__device__ __forceinline__ Real power(Real x) { return exp2f(static_cast<float>(x)); }
__device__ __forceinline__ void narrow(Data* to, Real x) { *to = static_cast<float>(x); }
#else
__device__ __forceinline__ Real power(Real x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#if STORAGE == 1
__device__ __forceinline__ void narrow(Data* to, Real x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(x)); }
#else
__device__ __forceinline__ void narrow(Data* to, Real x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(*to) : "f"(x)); }
#endif
#endif

#if STORAGE == 1 || STORAGE == 2
__device__ __forceinline__ void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if STORAGE == 1
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned packed(float low, float high) {
  unsigned pair;
#if STORAGE == 1
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
}

// An 8x8 tile of 16-bit numbers, rows of which lie in quads of lanes, transposed.
__device__ __forceinline__ unsigned transposed(unsigned tile) {
  unsigned other;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(tile));
  return other;
}
#else
__device__ __forceinline__ void multiply(double (&c)[2], double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c[0]), "+d"(c[1]) : "d"(a), "d"(b));
}
#endif

// Between what tensors hold and what is computed in.
#pragma once

#if STORAGE == 1
__device__ __forceinline__ Real wide(Data x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }
__device__ __forceinline__ Data narrow(Real x) {
  Data y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
#elif STORAGE == 2
__device__ __forceinline__ Real wide(Data x) {
  Real y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
__device__ __forceinline__ Data narrow(Real x) {
  Data y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
#else
__device__ __forceinline__ Real wide(Data x) { return x; }
__device__ __forceinline__ Data narrow(Real x) { return static_cast<Data>(x); }
#endif

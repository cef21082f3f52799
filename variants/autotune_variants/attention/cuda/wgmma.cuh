// Warpgroup products of 16-bit operands (sm_90a): descriptors, and 64 x N x 16 with A in shared memory or registers.
#pragma once

#include "arguments.cuh"

typedef unsigned long long u64;

#if HALF_FLOAT16
#define HALF_NAME "f16"
#else
#define HALF_NAME "bf16"
#endif

// A tile holds rows of 64 elements (128 bytes), swizzled: 16-byte unit c of row r lies at c ^ (r % 8). Wider tiles are
// blocks of 64 columns one after the other. `leading` is the distance of such blocks where columns are m or n.
__device__ __forceinline__ u64 descriptor(unsigned address, unsigned leading = 16) {
  return static_cast<u64>((address & 0x3ffff) >> 4) | static_cast<u64>(leading >> 4) << 16 | static_cast<u64>(1024 >> 4) << 32 |
         1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Makes ordinary writes to shared memory visible to the matrix units.
__device__ __forceinline__ void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define SUMS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SUMS_32 SUMS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_64                                                                                                      \
  SUMS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "   \
          "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define EIGHT(c, i)                                                                                                  \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]),        \
      "+f"(c[i + 7])
#define OPERANDS_16(c) EIGHT(c, 0), EIGHT(c, 8)
#define OPERANDS_32(c) OPERANDS_16(c), EIGHT(c, 16), EIGHT(c, 24)
#define OPERANDS_64(c) OPERANDS_32(c), EIGHT(c, 32), EIGHT(c, 40), EIGHT(c, 48), EIGHT(c, 56)

// c (+)= A B. Across = the operand's rows are k (its columns m or n), otherwise its rows are m or n.
#define DEFINE_PRODUCTS(N, SUMS, A, B, P, TA, TB, A1, A2, A3, RB, RP, RT)                                            \
  template <bool AcrossA, bool AcrossB>                                                                              \
  __device__ __forceinline__ void product(float(&c)[SUMS], u64 a, u64 b, bool add) {                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." HALF_NAME "." HALF_NAME " {" SUMS_##SUMS "}, " A  \
                 ", " B ", p, 1, 1, " TA ", " TB ";\n}"                                                              \
                 : OPERANDS_##SUMS(c)                                                                                \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(AcrossA ? 1 : 0), "n"(AcrossB ? 1 : 0));          \
  }                                                                                                                  \
  template <bool AcrossB>                                                                                            \
  __device__ __forceinline__ void product(float(&c)[SUMS], const unsigned(&a)[4], u64 b, bool add) {                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " RP ", 0;\n"                                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." HALF_NAME "." HALF_NAME " {" SUMS_##SUMS "}, {" A \
                 ", " A1 ", " A2 ", " A3 "}, " RB ", p, 1, 1, " RT ";\n}"                                            \
                 : OPERANDS_##SUMS(c)                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),                   \
                   "n"(AcrossB ? 1 : 0));                                                                            \
  }
DEFINE_PRODUCTS(32, 16, "%16", "%17", "%18", "%19", "%20", "%17", "%18", "%19", "%20", "%21", "%22")
DEFINE_PRODUCTS(64, 32, "%32", "%33", "%34", "%35", "%36", "%33", "%34", "%35", "%36", "%37", "%38")
DEFINE_PRODUCTS(128, 64, "%64", "%65", "%66", "%67", "%68", "%65", "%66", "%67", "%68", "%69", "%70")

// Two floats to one register of 16-bit numbers, the first in the low half.
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned r;
  asm("cvt.rn." HALF_NAME "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float unpack(unsigned short x) {
#if HALF_FLOAT16
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
#else
  return __uint_as_float(static_cast<unsigned>(x) << 16);
#endif
}

// Values of a contiguous vector from `first` on, one a thread; from `limit` on zero.
template <int Count>
__device__ __forceinline__ void load_vector(unsigned to, const float* from, i64 first, i64 limit) {
  if (threadIdx.x < Count) {
    const bool inside = first + threadIdx.x < limit;
    copy_async_small<4>(to + threadIdx.x * 4, inside ? from + first + threadIdx.x : from, inside ? 4 : 0);
  }
}

// Over the four lanes that hold a row.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

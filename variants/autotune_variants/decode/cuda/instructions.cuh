// What is written in PTX or left to the compiler's own functions; everything else is plain C++.
#pragma once
#include "../../cuda/conversions.cuh"
#include "../../cuda/copies.cuh"
#include "../../cuda/dependent.cuh"

#if STORAGE == 0
__device__ __forceinline__ Real power(Real x) { return exp2(x); }
#elif STORAGE == 3
__device__ __forceinline__ Real power(Real x) { return exp2f(static_cast<float>(x)); }
#else
__device__ __forceinline__ Real power(Real x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
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

// Sixteen bytes from global to shared memory; zeros where not `exists`, and then nothing is read.
__device__ __forceinline__ void copy_unit(void* to, const void* from, bool exists) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

#if CLUSTER > 1
__device__ __forceinline__ unsigned shared_address(const void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

// Readies a barrier for so many bytes from the blocks of the cluster, and tells them; the whole block has to call it.
__device__ __forceinline__ void open_inbox(u64* barrier, int bytes) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// Until all blocks of the cluster have opened their inboxes.
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// To where another block of the cluster has what this one has at `to` and `barrier`.
__device__ __forceinline__ void send(Real* to, int block, Real x, u64* barrier) {
  unsigned there, counter;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(to)), "r"(block));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter) : "r"(shared_address(barrier)), "r"(block));
#if STORAGE == 0 || STORAGE == 3
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(there), "l"(__double_as_longlong(x)), "r"(counter) : "memory");
#else
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there), "r"(__float_as_uint(x)), "r"(counter) : "memory");
#endif
}
// Until all bytes have come.
__device__ __forceinline__ void wait_inbox(u64* barrier) {
  unsigned done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(shared_address(barrier)) : "memory");
  }
}
#endif

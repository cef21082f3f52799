// Where the blocks of `weights` leave what they have added up: each share for itself, or with ATOMIC all in one sum.
#pragma once

__device__ __forceinline__ Real* part_of(const Args& a, i64 share, i64 which) {
  return a.parts + ((ATOMIC ? 0 : share * 3) + which) * a.hidden * DIM;
}

__device__ __forceinline__ void leave(Real* part, i64 feature, int d, Real value) {
  if constexpr (ATOMIC) {
    atomicAdd(part + feature * DIM + d, value);
  } else {
    part[feature * DIM + d] = value;
  }
}

// Zeros for the additions to come, by all blocks of an earlier launch.
__device__ __forceinline__ void clear_sums(const Args& a) {
  const i64 threads = static_cast<i64>(gridDim.x) * blockDim.x;
  for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < 3 * a.hidden * DIM; i += threads) a.parts[i] = 0;
}

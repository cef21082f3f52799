// Entry points of tiles on chip: tokens and weights as included before, then the sums over the shares.
#pragma once

#if KERNELS & 1
#include "weight_sums.cuh"

extern "C" __global__ void __launch_bounds__(kTokenThreads) tokens(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) unsigned char shared[];
  if (GRADS && ATOMIC) clear_sums(a);
  run_tokens(a, shared);
}
#endif

#if KERNELS & 2
extern "C" __global__ void __launch_bounds__(kWeightThreads) weights(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) unsigned char shared[];
  run_weights(a, shared);
}
#endif

#if KERNELS & 4
#include "combine.cuh"
#endif

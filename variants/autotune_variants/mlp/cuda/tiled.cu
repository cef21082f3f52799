// The gated MLP of narrow tokens, alone or behind a normalisation: everything about a tile of tokens on chip.
//
// Three launches for all gradients, one for the output alone; no atomic additions, so that repeats agree bitwise.
#include "tiled_config.cuh"
#if KERNELS & 1
#include "tiled_tokens.cuh"

extern "C" __global__ void __launch_bounds__(kTokenThreads) tokens(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) unsigned char shared[];
  run_tokens(a, shared);
}
#endif

#if KERNELS & 2
#include "tiled_weights.cuh"

extern "C" __global__ void __launch_bounds__(kWeightThreads) weights(const __grid_constant__ Args a) {
  extern __shared__ __align__(16) unsigned char shared[];
  run_weights(a, shared);
}
#endif

#if KERNELS & 4
#include "instructions.cuh"
#include "combine.cuh"
#endif

// The gated MLP of narrow float32 tokens, alone or behind a normalisation, on the 16-bit matrix units: see split_operands.cuh.
//
// One launch to split the tensors, then as in tiled.cu.
#include "tiled_config.cuh"
#if KERNELS & 8
#include "split_prepare.cuh"

extern "C" __global__ void __launch_bounds__(kPrepareThreads) prepare(const __grid_constant__ Args a) { run_prepare(a); }
#endif
#if KERNELS & 1
#include "split_tokens.cuh"
#endif
#if KERNELS & 2
#include "split_weights.cuh"
#endif
#include "tiled_entries.cuh"

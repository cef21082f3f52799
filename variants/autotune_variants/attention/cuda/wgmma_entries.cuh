// Entry points that both kinds of kernels on warpgroup products have; included behind their passes.
#pragma once

#define ENTRY extern "C" __global__ void __launch_bounds__(kThreads, 1)
extern __shared__ __align__(1024) char shared[];

#ifdef FORWARD_SHARED
static_assert(kForwardBytes == FORWARD_SHARED, "shared memory of the forward");
#endif
#ifdef COLUMN_SHARED
static_assert(kBackwardBytes == COLUMN_SHARED, "shared memory of the column pass");
#endif

ENTRY forward(const Args a) { forward_rows<false>(a, blockIdx.x, shared); }

// Forward of a training step: also writes what the backward reads, and zeros the sums of gq.
ENTRY forward_train(const Args a) { forward_rows<true>(a, blockIdx.x, shared); }

ENTRY backward_columns(const Args a) { column_pass(a, blockIdx.x, shared); }

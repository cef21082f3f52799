#pragma once

// The gradients of the weights from the shares, in order, or with ATOMIC from the sum of all; in the last blocks that of the
// normalisation's weight, a warp for each 32 features and each of the block's slices of the shares.
extern "C" __global__ void __launch_bounds__(kCombineThreads) combine(const __grid_constant__ Args a) {
  __shared__ Real sums[kCombineThreads];
  const i64 each = a.hidden * DIM, shares = ATOMIC ? 1 : a.shares, blocks = (3 * each + kCombineThreads - 1) / kCombineThreads;
  if (blockIdx.x < blocks) {
    const i64 i = blockIdx.x * static_cast<i64>(kCombineThreads) + threadIdx.x;
    if (i >= 3 * each) return;
    Real sum = 0;
#pragma unroll 8
    for (i64 share = 0; share < shares; ++share) sum += a.parts[share * 3 * each + i];
    const i64 which = i / each, feature = i % each / DIM, d = i % DIM;
    if (which == 0) a.grad_w_gate[d * a.grad_w_gate_strides.n + feature * a.grad_w_gate_strides.d] = narrow(sum);
    if (which == 1) a.grad_w_up[d * a.grad_w_up_strides.n + feature * a.grad_w_up_strides.d] = narrow(sum);
    if (which == 2) a.grad_w_down[feature * a.grad_w_down_strides.n + d * a.grad_w_down_strides.d] = narrow(sum);
    return;
  }
  const int d = static_cast<int>(blockIdx.x - blocks) * 32 + threadIdx.x % 32;
  const i64 parts = (a.rows + kTokens - 1) / kTokens;
  Real sum = 0;
  if (d < DIM) {
#pragma unroll 8
    for (i64 part = threadIdx.x / 32; part < parts; part += kCombineThreads / 32) sum += a.weight_parts[part * DIM + d];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 32 || d >= DIM) return;
  for (int slice = 1; slice < kCombineThreads / 32; ++slice) sum += sums[slice * 32 + threadIdx.x];
  a.grad_weight[d * a.grad_weight_strides.d] = narrow(sum);
}

// Entry points of bfloat16 and float16 attention on warpgroup products (sm_90a).
#include "half_backward.cuh"

#define ENTRY extern "C" __global__ void __launch_bounds__(kThreads, 1)
extern __shared__ __align__(1024) char shared[];

ENTRY forward(const Args a) { forward_rows<false>(a, blockIdx.x, shared); }

// Forward of a training step: also writes delta and zeros gq_sum.
ENTRY forward_train(const Args a) { forward_rows<true>(a, blockIdx.x, shared); }

ENTRY backward_columns(const Args a) { column_pass(a, blockIdx.x, shared); }

// delta[b, h, n] = sum over d of grad_out * out, one warp a row; zeros gq_sum.
extern "C" __global__ void prepare(const Args a) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.batch * a.heads * a.nq) return;
  const i64 n = row % a.nq, h = row / a.nq % a.heads, b = row / a.nq / a.heads;
  const Half *out = head_of(a.out, b, h) + n * a.out.n, *grad = head_of(a.grad_out, b, h) + n * a.grad_out.n;
  float sum = 0;
  for (int d = lane; d < HEAD_DIM; d += 32) {
    sum += unpack(out[d]) * unpack(grad[d]);
    a.gq_sum[row * HEAD_DIM + d] = 0;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane == 0) a.delta[row] = sum;
}

// gq = scale * gq_sum, rounded; one warp a row.
extern "C" __global__ void finish(const Args a) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.batch * a.heads * a.nq) return;
  const i64 n = row % a.nq, h = row / a.nq % a.heads, b = row / a.nq / a.heads;
  Half* gq = head_of(a.gq, b, h) + n * a.gq.n;
  for (int d = lane; d < HEAD_DIM; d += 32)
    gq[d * a.gq.d] = static_cast<Half>(pack(a.gq_sum[row * HEAD_DIM + d] * static_cast<float>(a.scale), 0));
}

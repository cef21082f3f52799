// Entry points of bfloat16 and float16 attention on warpgroup products (sm_90a).
#include "half_backward.cuh"
#include "wgmma_entries.cuh"

// shift from lse, and delta[b, h, n] = sum over d of grad_out * out, one warp a row; zeros the sums of gq.
extern "C" __global__ void prepare(const Args a) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.batch * a.heads * a.nq) return;
  const i64 n = row % a.nq, h = row / a.nq % a.heads, b = row / a.nq / a.heads;
  const Half *out = head_of(a.out_data, a.out, b, h) + n * a.out.n, *grad = head_of(a.grad_out_data, a.grad_out, b, h) + n * a.grad_out.n;
  float sum = 0;
  for (int d = lane; d < HEAD_DIM; d += 32) {
    sum += unpack(out[d * a.out.d]) * unpack(grad[d * a.grad_out.d]);
    a.scratch[row * HEAD_DIM + d] = 0;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane > 0) return;
  const float lse = lse_of(a, b, h, n);
  a.delta[row] = sum, a.shift[row] = lse == -__int_as_float(0x7f800000) ? 0 : static_cast<float>(lse * kLog2e);
}

// gq = scale * sums, rounded; one warp a row.
extern "C" __global__ void finish(const Args a) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.batch * a.heads * a.nq) return;
  const i64 n = row % a.nq, h = row / a.nq % a.heads, b = row / a.nq / a.heads;
  const float scale = static_cast<float>(fabs(a.scale));  // the keys had its sign
  Half* gq = head_of(a.gq_data, a.gq, b, h) + n * a.gq.n;
  for (int d = lane; d < HEAD_DIM; d += 32)
    gq[d * a.gq.d] = static_cast<Half>(pack(a.scratch[row * HEAD_DIM + d] * scale, 0));
}

// The largest squared norm of rows of grad_out and v in every part of every head; B (H + Hkv) kParts blocks.
ENTRY measure(const Args a) {
  const i64 part = blockIdx.x % kParts, item = blockIdx.x / kParts, grads = a.batch * a.heads;
  const bool is_grad = item < grads;
  const i64 heads = is_grad ? a.heads : a.kv_heads, place = is_grad ? item : item - grads, rows = is_grad ? a.nq : a.nk;
  const Strides& x = is_grad ? a.grad_out : a.v;
  const Half* head = head_of(is_grad ? a.grad_out_data : a.v_data, x, place / heads, place % heads);
  const i64 share = (rows + kParts - 1) / kParts, last = min(rows, (part + 1) * share);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float norm = 0;
  for (i64 n = part * share + warp; n < last; n += kThreads / 32) {
    float sum = 0;
    for (int d = lane; d < HEAD_DIM; d += 32) {
      const float value = unpack(head[n * x.n + d * x.d]);
      sum = fmaf(value, value, sum);
    }
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    norm = fmaxf(norm, sum);
  }
  __shared__ float norms[kThreads / 32];
  if (lane == 0) norms[warp] = norm;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < kThreads / 32; ++i) norm = fmaxf(norm, norms[i]);
  a.measures[item * kParts + part] = norm;
}

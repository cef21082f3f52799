// Entry points of tiled attention on the matrix units; see forward.cuh and backward_*.cuh.
#include "backward_columns.cuh"
#include "backward_rows.cuh"

#define ENTRY extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)

extern __shared__ __align__(1024) char shared[];

ENTRY forward(const Args a) { forward_rows<false>(a, blockIdx.x, shared); }

// Forward of a training step: writes delta as well, and with ATOMIC_GQ zeros to gq.
ENTRY forward_train(const Args a) { forward_rows<true>(a, blockIdx.x, shared); }

ENTRY backward_columns(const Args a) { column_pass(a, blockIdx.x, shared); }

ENTRY backward_rows(const Args a) { row_pass(a, blockIdx.x, shared); }

// Both passes in one launch: they share only inputs, and the second fills the tail of the first.
ENTRY backward_both(const Args a) {
  const i64 columns = (a.nk + kBlock - 1) / kBlock * a.batch * a.kv_heads * kChunks;
  if (blockIdx.x < columns) {
    column_pass(a, blockIdx.x, shared);
  } else {
    row_pass(a, blockIdx.x - columns, shared);
  }
}

// delta[b, h, n] = sum over d of grad_out * out, one warp a row; shift and inverse from lse; with ATOMIC_GQ also
// zeros in gq.
extern "C" __global__ void prepare(const Args a) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.batch * a.heads * a.nq) return;
  const i64 n = row % a.nq, h = row / a.nq % a.heads, b = row / a.nq / a.heads;
  const Data *out = head_of(a.out, b, h) + n * a.out.n, *grad = head_of(a.grad_out, b, h) + n * a.grad_out.n;
  Data* gq = const_cast<Data*>(head_of(a.gq, b, h)) + n * a.gq.n;
  Real sum = 0;
  for (int d = lane; d < HEAD_DIM; d += 32) {
    sum += read(out + d * a.out.d) * read(grad + d * a.grad_out.d);
    if (ATOMIC_GQ) gq[d * a.gq.d] = 0;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane > 0) return;
  const double top = a.lse[row] * kLog2e, shift = top == -infinity(0.0) ? 0 : ceil(top);
  a.delta[row] = sum, a.shift[row] = Real(shift), a.inverse[row] = top == -infinity(0.0) ? Real(0) : Real(exp2(shift - top));
}

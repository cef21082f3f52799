// Entry points of tiled attention; see tiled_forward.cuh, tiled_columns.cuh and tiled_rows.cuh.
#include "tiled_columns.cuh"
#include "tiled_rows.cuh"

#define ENTRY extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)

extern __shared__ __align__(1024) char shared[];

// The host computes the shared memory of a block itself; here it is held to that.
#ifdef FORWARD_SHARED
static_assert(kForwardShared == FORWARD_SHARED, "shared memory of the forward");
#endif
#ifdef COLUMN_SHARED
static_assert(kColumnShared == COLUMN_SHARED, "shared memory of the column pass");
#endif
#ifdef ROW_SHARED
static_assert(kRowShared == ROW_SHARED, "shared memory of the row pass");
#endif

#if KERNELS & 1
ENTRY forward(const Args a) { forward_rows<false>(a, blockIdx.x, shared); }
#endif

#if KERNELS & 2
// Forward of a training step: also writes what the backward wants to know of each row.
ENTRY forward_train(const Args a) { forward_rows<true>(a, blockIdx.x, shared); }
#endif

#if KERNELS & 4
ENTRY backward_columns(const Args a) { column_pass(a, blockIdx.x, shared); }
#endif

#if KERNELS & 8
ENTRY backward_rows(const Args a) { row_pass(a, blockIdx.x, shared); }
#endif

#if KERNELS & 16
// Both passes in one launch: they share only inputs, and the second fills the tail of the first.
ENTRY backward_both(const Args a) {
  const i64 columns = (a.nk + kBlock - 1) / kBlock * a.batch * a.kv_heads * kChunks;
  if (blockIdx.x < columns) {
    column_pass(a, blockIdx.x, shared);
  } else {
    row_pass(a, blockIdx.x - columns, shared);
  }
}
#endif

#if KERNELS & 32
// delta[b, h, n] = sum over d of grad_out * out, one warp a row; with ATOMIC_GQ also zeros in gq. FromLse also gives
// shift and inverse.
template <bool FromLse>
__device__ __forceinline__ void prepare_rows(const Args& a) {
  let_next_start();
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.batch * a.heads * a.nq) return;
  const i64 n = row % a.nq, h = row / a.nq % a.heads, b = row / a.nq / a.heads;
  const Data* out = head_of(a.out_data, a.out, b, h) + n * a.out.n;
  const Data* grad = head_of(a.grad_out_data, a.grad_out, b, h) + n * a.grad_out.n;
  Data* gq = head_of(a.gq_data, a.gq, b, h) + n * a.gq.n;
  Real sum = 0;
  for (int d = lane; d < HEAD_DIM; d += 32) {
    sum += read(out + d * a.out.d) * read(grad + d * a.grad_out.d);
    if (ATOMIC_GQ) gq[d * a.gq.d] = 0;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane > 0) return;
  a.delta[row] = sum;
  if (FromLse) {
    const double top = lse_of(a, b, h, n) * kLog2e;
    const bool empty = top == -infinity(0.0);
    a.shift[row] = empty ? Real(0) : Real(ceil(top));
    a.inverse[row] = empty ? Real(0) : Real(exp2(ceil(top) - top));
  }
}

extern "C" __global__ void prepare(const Args a) { prepare_rows<true>(a); }

extern "C" __global__ void prepare_train(const Args a) { prepare_rows<false>(a); }
#endif

// The small passes around the study's arrangements: zeros before atomic additions, results after them, and the rows' sums
// of dO * Out. STEPS names the gradients at hand.
#include "arrangements_base.cuh"

template <int Dim, typename Visit>
__device__ void for_all(const Args& a, i64 heads, i64 rows, Visit visit) {
  if constexpr (Dim > 0) {
    for (i64 i = static_cast<i64>(blockIdx.x) * BLOCK + threadIdx.x; i < a.batch * heads * rows * Dim;
         i += static_cast<i64>(gridDim.x) * BLOCK)
      visit(i / Dim / rows / heads, i / Dim / rows % heads, i / Dim % rows, static_cast<int>(i % Dim));
  }
}

template <int Dim>
__device__ void zero(const Args& a, i64 heads, i64 rows, const Sums& to) {
  for_all<Dim>(a, heads, rows, [&](i64 b, i64 h, i64 n, int d) { to.head(b, h, n)[d * to.d] = 0; });
}

template <int Dim>
__device__ void round(const Args& a, i64 heads, i64 rows, const Sums& from, const Tensor& to) {
  for_all<Dim>(a, heads, rows,
               [&](i64 b, i64 h, i64 n, int d) { store(to.head(b, h, n) + d * to.d, from.head(b, h, n)[d * from.d]); });
}

// to = the sum of every split's copy, over the query heads of a group.
template <int Dim>
__device__ void add_copies(const Args& a, const Real* parts, const Tensor& to) {
  const i64 shared_by = a.heads / max(a.kv_heads, 1ll), copy = a.batch * a.heads * a.nk * Dim;
  for_all<Dim>(a, a.kv_heads, a.nk, [&](i64 b, i64 h, i64 n, int d) {
    Real sum = 0;
    for (i64 split = 0; split < a.splits; ++split)
      for (i64 head = h * shared_by; head < (h + 1) * shared_by; ++head)
        sum += parts[split * copy + ((b * a.heads + head) * a.nk + n) * Dim + d];
    store(to.head(b, h, n) + d * to.d, sum);
  });
}

KERNEL clear_sums(const Args a) {
  if constexpr (STEPS & GRAD_Q) zero<HEAD_DIM>(a, a.heads, a.nq, a.sum_q);
  if constexpr (STEPS & GRAD_K) zero<HEAD_DIM>(a, a.kv_heads, a.nk, a.sum_k);
  if constexpr (STEPS & GRAD_V) zero<VALUE_DIM>(a, a.kv_heads, a.nk, a.sum_v);
}

KERNEL round_sums(const Args a) {
  if constexpr (STEPS & GRAD_Q) round<HEAD_DIM>(a, a.heads, a.nq, a.sum_q, a.grad_q);
  if constexpr (STEPS & GRAD_K) round<HEAD_DIM>(a, a.kv_heads, a.nk, a.sum_k, a.grad_k);
  if constexpr (STEPS & GRAD_V) round<VALUE_DIM>(a, a.kv_heads, a.nk, a.sum_v, a.grad_v);
}

KERNEL sum_copies(const Args a) {
  if constexpr (STEPS & GRAD_K) add_copies<HEAD_DIM>(a, a.parts_k, a.grad_k);
  if constexpr (STEPS & GRAD_V) add_copies<VALUE_DIM>(a, a.parts_v, a.grad_v);
}

// corrections[b, h, n] = <dO, Out>, a warp a row.
KERNEL output_corrections(const Args a) {
  const int lane = threadIdx.x % 32;
  for (i64 i = blockIdx.x * (BLOCK / 32ll) + threadIdx.x / 32; i < a.batch * a.heads * a.nq; i += gridDim.x * (BLOCK / 32ll)) {
    const i64 b = i / a.nq / a.heads, h = i / a.nq % a.heads, n = i % a.nq;
    const Data *out = a.out.head(b, h, n), *grad_out = a.grad_out.head(b, h, n);
    Real sum = 0;
    for (int d = lane; d < VALUE_DIM; d += 32) sum += load(out + d * a.out.d) * load(grad_out + d * a.grad_out.d);
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (lane == 0) a.corrections[i] = sum;
  }
}

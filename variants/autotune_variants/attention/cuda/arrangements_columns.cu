// Column passes of the study's arrangements: parallel over keys.
#include "arrangements_recompute.cuh"

KERNEL ENTRY(const Args a) {
  for (i64 item = blockIdx.x; item < a.batch * a.kv_heads * ((a.nk + COLUMNS - 1) / COLUMNS); item += gridDim.x) {
    const ColumnTile t(a, item);
    if constexpr (STEPS & SCORE_GRADIENTS) {
      __shared__ StepShared s;
      recompute_columns(a, t, s);
    } else if constexpr (STEPS & GRAD_V) {
      column_sums<VALUE_DIM>(a, t, a.a, a.grad_out, a.grad_v);
    } else {
      column_sums<HEAD_DIM>(a, t, a.gs, a.q, a.grad_k);
    }
  }
}

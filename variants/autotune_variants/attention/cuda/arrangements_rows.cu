// Row passes of the study's arrangements: parallel over query rows.
#include "arrangements_rows.cuh"

KERNEL ENTRY(const Args a) {
  __shared__ RowShared s;
  const i64 tiles = (a.nq + ROWS - 1) / ROWS;
  Real* scratch = a.scratch + blockIdx.x * 2ll * ROWS * a.nk;
  if constexpr (STEPS & OWN_COPIES) {
    // Block (split, b, h) takes a fixed share of the head's tiles, in order: its sums do not depend on timing.
    const i64 heads = a.batch * a.heads, pair = blockIdx.x % heads, split = blockIdx.x / heads;
    Real *copy_k = a.parts_k + blockIdx.x * a.nk * HEAD_DIM, *copy_v = a.parts_v + blockIdx.x * a.nk * VALUE_DIM;
    if constexpr (STEPS & GRAD_K) for_elements<HEAD_DIM>(a.nk, [&](i64 ic, int d) { copy_k[ic * HEAD_DIM + d] = 0; });
    if constexpr (STEPS & GRAD_V) for_elements<VALUE_DIM>(a.nk, [&](i64 ic, int d) { copy_v[ic * VALUE_DIM + d] = 0; });
    for (i64 tile = split * tiles / a.splits; tile < (split + 1) * tiles / a.splits; ++tile)
      row_tile(a, RowTile(a, pair * tiles + tile), s, scratch, copy_k, copy_v);
  } else {
    for (i64 item = blockIdx.x; item < a.batch * a.heads * tiles; item += gridDim.x)
      row_tile(a, RowTile(a, item), s, scratch, nullptr, nullptr);
  }
}

// What becomes of a block's sums over the hidden features: out, grad_x, and a share of the gradient of the normalisation.
// A lane holds rows g and g + 8 of its warp's 16 tokens, and columns 2t and 2t + 1 of every 8.
#pragma once

// Sums over the groups of warps, in order, left in the first of them. `space` holds kTokens * kDim values.
__device__ __forceinline__ void add_groups(Real (&result)[kDepth][4], Real* space) {
  const int group = threadIdx.x / (32 * ROW_WARPS), own = threadIdx.x % (32 * ROW_WARPS);
#pragma unroll 1
  for (int other = 1; other < SPLIT_WARPS; ++other) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * kDepth; ++i) {
      if (group == other) space[i * 32 * ROW_WARPS + own] = result[i / 4][i % 4];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * kDepth; ++i) {
      if (group == 0) result[i / 4][i % 4] += space[i * 32 * ROW_WARPS + own];
    }
  }
}

// A lane's two neighbours of a row, from or to a tensor.
struct __align__(2 * sizeof(Data)) TwoData {
  Data x, y;
};
__device__ __forceinline__ Pair read_two(const Data* tensor, const Strides& s, i64 row, int d) {
  const Data* at = tensor + row * s.n + d * s.d;
  if (ALIGNED && d + 1 < DIM) {
    const TwoData two = *reinterpret_cast<const TwoData*>(at);
    return {wide(two.x), wide(two.y)};
  }
  return {d < DIM ? wide(at[0]) : Real(0), d + 1 < DIM ? wide(at[s.d]) : Real(0)};
}
__device__ __forceinline__ void write_two(Data* tensor, const Strides& s, i64 row, int d, const Pair& two) {
  Data* at = tensor + row * s.n + d * s.d;
  if (ALIGNED && d + 1 < DIM) {
    *reinterpret_cast<TwoData*>(at) = {narrow(two.x), narrow(two.y)};
    return;
  }
  if (d < DIM) at[0] = narrow(two.x);
  if (d + 1 < DIM) at[s.d] = narrow(two.y);
}

__device__ __forceinline__ void store_out(const Args& a, i64 first, const Lane& lane, const Real (&out)[kDepth][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 row = first + lane.g + 8 * half;
    if (row >= a.rows) continue;
#pragma unroll
    for (int n = 0; n < kDepth; ++n) {
      Pair two = {out[n][2 * half], out[n][2 * half + 1]};
      if (RESIDUAL) {
        const Pair x = read_two(a.x, a.x_strides, row, 8 * n + 2 * lane.t);
        two.x += x.x, two.y += x.y;
      }
      write_two(a.out, a.out_strides, row, 8 * n + 2 * lane.t, two);
    }
  }
}

// Through the normalisation: grad_x of 16 tokens from `grad`, and in `shares` this lane's columns of the weight's gradient.
__device__ __forceinline__ void store_grad_x(const Args& a, i64 first, const Lane& lane, const Real* inverses, const Real (&grad)[kDepth][4],
                                             Pair (&shares)[kDepth]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const i64 row = first + lane.g + 8 * half;
    const bool inside = row < a.rows;
    const Real inverse = NORM ? inverses[lane.g + 8 * half] : 1;
    Pair x[kDepth];
    Real product = 0;
    if (NORM) {
#pragma unroll
      for (int n = 0; n < kDepth; ++n) {
        const int d = 8 * n + 2 * lane.t;
        x[n] = inside ? read_two(a.x, a.x_strides, row, d) : Pair{0, 0};
        x[n].x *= inverse, x[n].y *= inverse;
        const Pair g = {grad[n][2 * half], grad[n][2 * half + 1]};
        shares[n].x += g.x * x[n].x, shares[n].y += g.y * x[n].y;
        const Pair weight = read_two(a.weight, {0, 0, 0, a.weight_strides.d}, 0, d);
        product += g.x * weight.x * x[n].x + g.y * weight.y * x[n].y;
      }
      product += __shfl_xor_sync(~0u, product, 1);
      product += __shfl_xor_sync(~0u, product, 2);
      product /= DIM;
    }
    if (!inside) continue;
#pragma unroll
    for (int n = 0; n < kDepth; ++n) {
      const int d = 8 * n + 2 * lane.t;
      Pair two = {grad[n][2 * half], grad[n][2 * half + 1]};
      if (NORM) {
        const Pair weight = read_two(a.weight, {0, 0, 0, a.weight_strides.d}, 0, d);
        two.x = (two.x * weight.x - x[n].x * product) * inverse, two.y = (two.y * weight.y - x[n].y * product) * inverse;
      }
      if (RESIDUAL) {
        const Pair more = read_two(a.grad_out, a.grad_out_strides, row, d);
        two.x += more.x, two.y += more.y;
      }
      write_two(a.grad_x, a.grad_x_strides, row, d, two);
    }
  }
}

// The block's share of the gradient of the normalisation's weight, from those of its warps in order.
__device__ __forceinline__ void store_weight_share(const Args& a, Real* sums, const Lane& lane, bool first_group, Pair (&shares)[kDepth]) {
  if (first_group) {
#pragma unroll
    for (int n = 0; n < kDepth; ++n) {
#pragma unroll
      for (int bit = 4; bit < 32; bit *= 2) {
        shares[n].x += __shfl_xor_sync(~0u, shares[n].x, bit);
        shares[n].y += __shfl_xor_sync(~0u, shares[n].y, bit);
      }
      if (lane.g == 0) *reinterpret_cast<Pair*>(sums + threadIdx.x / 32 * kDim + 8 * n + 2 * lane.t) = shares[n];
    }
  }
  __syncthreads();
  for (int d = threadIdx.x; d < DIM; d += kTokenThreads) {
    Real sum = 0;
    for (int warp = 0; warp < ROW_WARPS; ++warp) sum += sums[warp * kDim + d];
    a.weight_parts[blockIdx.x * static_cast<i64>(DIM) + d] = sum;
  }
}

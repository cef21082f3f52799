// rmsnorm and its backward: a group of threads holds a row in registers, so that every tensor is read once.
#ifndef DIM
#define DIM 64        // features of a row
#endif
#ifndef LANES
#define LANES 32      // threads of a row
#endif
#ifndef VECTOR
#define VECTOR 1      // neighbouring features of a thread: as many as 16 bytes hold, or 1 where rows are not aligned
#endif
#ifndef THREADS
#define THREADS 256   // of a block
#endif

#include "../../cuda/storage.cuh"

typedef long long i64;

struct Strides {
  i64 b, h, n, d;  // in elements; b and h are not used
};

struct Args {
  const Data *x, *weight, *grad_out;
  Data *out, *grad_x, *grad_weight;
  Real* parts;         // [blocks, DIM]: every block's share of grad_weight
  const Data* added;   // null, or what is added to x before it is normalised
  Data* sum;           // null, or where that sum goes
  const Data* above;   // null, or what is added to grad_x
  double eps;
  i64 rows, blocks;
  Strides x_strides, weight_strides, grad_out_strides, out_strides, grad_x_strides, grad_weight_strides;
  Strides added_strides, sum_strides, above_strides;
};

constexpr int kGroups = THREADS / LANES;                       // rows of a block at a time
constexpr int kSteps = (DIM + LANES * VECTOR - 1) / (LANES * VECTOR);
constexpr int kHeld = kSteps * VECTOR;                         // features of a thread
static_assert(THREADS % LANES == 0 && LANES % 32 == 0, "whole warps");

struct __align__(VECTOR * sizeof(Data)) Vector {
  Data element[VECTOR];
};

__device__ __forceinline__ int feature(int step) { return (step * LANES + static_cast<int>(threadIdx.x) % LANES) * VECTOR; }

// A thread's features of a row; zeros past its end.
__device__ __forceinline__ void load(Real (&held)[kHeld], const Data* row, i64 stride) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int d = feature(step);
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) held[step * VECTOR + e] = 0;
    if (d >= DIM) continue;
    if (VECTOR == 1) {
      held[step] = wide(row[d * stride]);
    } else {
      const Vector found = *reinterpret_cast<const Vector*>(row + d);
#pragma unroll
      for (int e = 0; e < VECTOR; ++e) held[step * VECTOR + e] = wide(found.element[e]);
    }
  }
}

__device__ __forceinline__ void store(Data* row, i64 stride, const Real (&held)[kHeld]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int d = feature(step);
    if (d >= DIM) continue;
    if (VECTOR == 1) {
      row[d * stride] = narrow(held[step]);
    } else {
      Vector made;
#pragma unroll
      for (int e = 0; e < VECTOR; ++e) made.element[e] = narrow(held[step * VECTOR + e]);
      *reinterpret_cast<Vector*>(row + d) = made;
    }
  }
}

__device__ __forceinline__ void add(Real (&held)[kHeld], const Data* row, i64 stride) {
  Real more[kHeld];
  load(more, row, stride);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] += more[i];
}

// Over the threads of a row, the same in each of them. All rows of a block call it together.
__device__ __forceinline__ Real over_row(Real x, Real* space) {
#pragma unroll
  for (int bit = 1; bit < 32; bit *= 2) x += __shfl_xor_sync(~0u, x, bit);
  if (LANES == 32) return x;
  __syncthreads();
  if (threadIdx.x % 32 == 0) space[threadIdx.x / 32] = x;
  __syncthreads();
  const int first = threadIdx.x / LANES * (LANES / 32);
  x = space[first];
#pragma unroll
  for (int i = 1; i < LANES / 32; ++i) x += space[first + i];
  return x;
}

__device__ __forceinline__ Real inverse_root(const Real (&x)[kHeld], double eps, Real* space) {
  Real squares = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) squares += x[i] * x[i];
  const Real mean = over_row(squares, space) / DIM + static_cast<Real>(eps);
  return 1 / sqrt(mean);
}

extern "C" __global__ void __launch_bounds__(THREADS) normalise(const __grid_constant__ Args a) {
  __shared__ Real space[THREADS / 32];
  Real weight[kHeld], x[kHeld];
  load(weight, a.weight, a.weight_strides.d);
  const i64 rounds = (a.rows + a.blocks * kGroups - 1) / (a.blocks * kGroups);
  for (i64 round = 0; round < rounds; ++round) {
    const i64 row = (round * a.blocks + blockIdx.x) * kGroups + threadIdx.x / LANES;
    const i64 read = row < a.rows ? row : 0;  // threads without a row go along
    load(x, a.x + read * a.x_strides.n, a.x_strides.d);
    if (a.added) add(x, a.added + read * a.added_strides.n, a.added_strides.d);
    if (a.sum && row < a.rows) store(a.sum + row * a.sum_strides.n, a.sum_strides.d, x);
    const Real factor = inverse_root(x, a.eps, space);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) x[i] *= factor * weight[i];
    if (row < a.rows) store(a.out + row * a.out_strides.n, a.out_strides.d, x);
  }
}

// x + added of every row, for a residual without a normalisation.
extern "C" __global__ void __launch_bounds__(THREADS) add_rows(const __grid_constant__ Args a) {
  Real x[kHeld];
  for (i64 row = blockIdx.x * static_cast<i64>(kGroups) + threadIdx.x / LANES; row < a.rows; row += a.blocks * kGroups) {
    load(x, a.x + row * a.x_strides.n, a.x_strides.d);
    add(x, a.added + row * a.added_strides.n, a.added_strides.d);
    store(a.sum + row * a.sum_strides.n, a.sum_strides.d, x);
  }
}

// grad_x of every row, and the block's share of grad_weight.
extern "C" __global__ void __launch_bounds__(THREADS) backward_rows(const __grid_constant__ Args a) {
  __shared__ Real space[THREADS / 32];
  extern __shared__ __align__(16) unsigned char shared[];
  Real* sums = reinterpret_cast<Real*>(shared);  // [DIM]
  Real weight[kHeld], x[kHeld], g[kHeld], share[kHeld] = {};
  load(weight, a.weight, a.weight_strides.d);
  const i64 rounds = (a.rows + a.blocks * kGroups - 1) / (a.blocks * kGroups);
  for (i64 round = 0; round < rounds; ++round) {
    const i64 row = (round * a.blocks + blockIdx.x) * kGroups + threadIdx.x / LANES;
    const i64 read = row < a.rows ? row : 0;
    load(x, a.x + read * a.x_strides.n, a.x_strides.d);
    load(g, a.grad_out + read * a.grad_out_strides.n, a.grad_out_strides.d);
    const Real factor = inverse_root(x, a.eps, space);
    Real product = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      x[i] *= factor;
      if (row < a.rows) share[i] += g[i] * x[i];
      g[i] *= weight[i];
      product += g[i] * x[i];
    }
    product = over_row(product, space) / DIM;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) g[i] = (g[i] - x[i] * product) * factor;
    if (a.above) add(g, a.above + read * a.above_strides.n, a.above_strides.d);
    if (row < a.rows) store(a.grad_x + row * a.grad_x_strides.n, a.grad_x_strides.d, g);
  }
  for (int turn = 0; turn < kGroups; ++turn) {  // in the order of the groups: always the same sums
    if (turn == static_cast<int>(threadIdx.x) / LANES) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int d = feature(i / VECTOR) + i % VECTOR;
        if (d < DIM) sums[d] = turn ? sums[d] + share[i] : share[i];
      }
    }
    __syncthreads();
  }
  for (int d = threadIdx.x; d < DIM; d += THREADS) a.parts[blockIdx.x * static_cast<i64>(DIM) + d] = sums[d];
}

// grad_weight from the shares: a warp for each 32 features and each of the block's slices of the shares, whose sums are
// added in order.
extern "C" __global__ void __launch_bounds__(THREADS) sum_parts(const __grid_constant__ Args a) {
  __shared__ Real sums[THREADS];
  const int d = blockIdx.x * 32 + threadIdx.x % 32;
  Real sum = 0;
  if (d < DIM) {
#pragma unroll 8
    for (i64 block = threadIdx.x / 32; block < a.blocks; block += THREADS / 32) sum += a.parts[block * DIM + d];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 32 || d >= DIM) return;
  for (int slice = 1; slice < THREADS / 32; ++slice) sum += sums[slice * 32 + threadIdx.x];
  a.grad_weight[d * a.grad_weight_strides.d] = narrow(sum);
}

// What all kernels of the study's arrangements share: their configuration, arguments and reductions. The macros are set
// by the host; STEPS says which of the steps below one compilation of a kernel performs.
#pragma once

#ifndef REAL
#define REAL double   // type of all arithmetic and of A and GS: double, or float
#endif
#ifndef STORAGE
#define STORAGE 0     // tensors hold 0: REAL, 1: bfloat16, 2: float16
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef VALUE_DIM
#define VALUE_DIM HEAD_DIM
#endif
#ifndef BLOCK
#define BLOCK 128     // threads of a block
#endif
#ifndef ROWS
#define ROWS 1        // query rows that a block of a row pass takes together: 1 as in the study
#endif
#ifndef COLUMNS
#define COLUMNS 1     // neighbouring keys that a block of a column pass takes together: 1 as in the study
#endif
#ifndef ON_CHIP
#define ON_CHIP 0     // column passes: 1 keeps every feature's sum on chip, 0 sweeps the column once a feature
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef STEPS
#define STEPS 0
#endif
#ifndef ENTRY
#define ENTRY entry   // name of the kernel
#endif

enum Step {
  SOFTMAX = 1,           // A from Q and K
  OUTPUT = 2,            // Out = A V
  SCORE_GRADIENTS = 4,   // GS from A, dO and V
  GRAD_Q = 8,            // GQ = GS K
  GRAD_K = 16,           // GK = GS^T Q
  GRAD_V = 32,           // GV = A^T dO
  A_STORED = 64,         // A is a matrix of the whole problem, not a temporary of the block
  GS_STORED = 128,       // so is GS
  OWN_COPIES = 256,      // a row pass adds GK and GV into copies of the block's split, not atomically
  LSE = 512,             // a row pass writes lse
  CORRECTIONS = 1024     // a row pass writes the corrections
};

typedef REAL Real;
typedef long long i64;

#if STORAGE == 0
typedef REAL Data;
__device__ __forceinline__ Real load(const Data* from) { return *from; }
__device__ __forceinline__ void store(Data* to, Real x) { *to = x; }
#elif STORAGE == 1
typedef unsigned short Data;
__device__ __forceinline__ Real load(const Data* from) { return __uint_as_float(static_cast<unsigned>(*from) << 16); }
__device__ __forceinline__ void store(Data* to, Real x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*to) : "f"(x)); }
#else
typedef unsigned short Data;
__device__ __forceinline__ Real load(const Data* from) {
  Real x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(*from));
  return x;
}
__device__ __forceinline__ void store(Data* to, Real x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(*to) : "f"(x)); }
#endif

template <typename T>
struct Strided {
  T* data;
  i64 b, h, n, d;  // strides in elements
  __device__ __forceinline__ T* head(i64 batch, i64 head, i64 first) const { return data + batch * b + head * h + first * n; }
};
typedef Strided<Data> Tensor;
typedef Strided<Real> Sums;

// Laid out as arrangements.py packs it: 8-byte words only. Arrays that an arrangement lacks are null.
struct Args {
  Tensor q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  Sums lse;                  // [B, H, Nq], natural logarithm; no stride d
  Sums sum_q, sum_k, sum_v;  // where atomic additions go: grad_q, grad_k, grad_v, or wider arrays beside them
  Real *a, *gs;              // [B, H, Nq, Nk]
  Real* corrections;         // [B, H, Nq], sum over keys of A * (dO V^T)
  Real* scratch;             // [blocks of the grid, 2, ROWS, Nk]: A and GS of the rows at hand
  Real *parts_k, *parts_v;   // [splits, B, H, Nk, D or Dv]
  i64 batch, heads, kv_heads, nq, nk, splits;
  double scale;
};

constexpr int kWidth = HEAD_DIM > VALUE_DIM ? HEAD_DIM : VALUE_DIM;
constexpr int kRun = 64;  // terms summed before they join a total: long sums in float32 lose less so
static_assert(BLOCK % 32 == 0 && BLOCK >= 64 && BLOCK <= 1024, "whole warps");

// Threads of a block along a feature dimension; groups of so many share the other dimension.
__host__ __device__ constexpr int lanes_of(int dim) {
  int lanes = 1;
  while (lanes < dim && lanes < BLOCK) lanes *= 2;
  return lanes;
}

// Keys that query row n attends: from the first on.
__device__ __forceinline__ i64 attended(const Args& a, i64 n) {
  return CAUSAL ? max(min(a.nk, n + 1 + a.nk - a.nq), 0ll) : a.nk;
}

template <typename Join>
__device__ Real reduce(Real x, Real* warps, Join join) {
  for (int offset = 16; offset; offset /= 2) x = join(x, __shfl_xor_sync(~0u, x, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = warps[0];
  for (int i = 1; i < BLOCK / 32; ++i) x = join(x, warps[i]);
  return x;
}

__device__ Real block_sum(Real x, Real* warps) {
  return reduce(x, warps, [](Real a, Real b) { return a + b; });
}

__device__ Real block_max(Real x, Real* warps) {
  return reduce(x, warps, [](Real a, Real b) { return a > b ? a : b; });
}

// Visits (n, d) for all n < count and d < Dim, neighbouring threads neighbouring elements; each always the same thread.
template <int Dim, typename Visit>
__device__ __forceinline__ void for_elements(i64 count, Visit visit) {
  if constexpr (Dim > 0) {
    i64 n = threadIdx.x / Dim;
    for (int d = threadIdx.x % Dim; n < count; n += BLOCK / Dim) {
      visit(n, d);
      if constexpr (BLOCK % Dim != 0) {
        d += BLOCK % Dim;
        if (d >= Dim) {
          d -= Dim;
          ++n;
        }
      }
    }
  }
}

#define KERNEL extern "C" __global__ void __launch_bounds__(BLOCK)

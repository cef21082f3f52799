// Ceilings of a GPU that no library measures: reading, multiply-adds, TF32 products of a warp.
// One entry per kernel; eight independent chains a thread, so that latency does not show.
#define CHAINS 8

// Sums `count` pairs; what it writes depends on all of them.
extern "C" __global__ void __launch_bounds__(1024) read_stream(const double2* x, long long count, double* out) {
  double total = 0.0;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const double2 pair = x[i];
    total += pair.x + pair.y;
  }
  out[(long long)blockIdx.x * blockDim.x + threadIdx.x] = total;
}

template <typename Real>
__device__ void chains(double* out, int rounds) {
  Real sums[CHAINS] = {};
  const Real factor = (Real)1 + (Real)1e-6 * threadIdx.x, added = (Real)1e-3 * threadIdx.x;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i) sums[i] = sums[i] * factor + added;
  }
  Real total = 0;
  for (int i = 0; i < CHAINS; ++i) total += sums[i];
  out[(long long)blockIdx.x * blockDim.x + threadIdx.x] = (double)total;
}

extern "C" __global__ void __launch_bounds__(512) chain_float64(double* out, int rounds) {
  chains<double>(out, rounds);
}

extern "C" __global__ void __launch_bounds__(512) chain_float32(double* out, int rounds) {
  chains<float>(out, rounds);
}

extern "C" __global__ void __launch_bounds__(512) product_tf32(double* out, int rounds) {
  float sums[CHAINS][4] = {};
  const unsigned operand = __float_as_uint(1e-3f * threadIdx.x) & 0xffffe000u;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < CHAINS; ++i)
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
          : "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
          : "r"(operand));
  }
  double total = 0.0;
  for (int i = 0; i < CHAINS; ++i) total += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  out[(long long)blockIdx.x * blockDim.x + threadIdx.x] = total;
}

// Ceilings of the arithmetic units: UNIT picks the instruction; eight independent accumulators a warp.
// 0 DMMA m8n8k4, 1 DMMA m16n8k4, 2 DFMA, 3 FFMA, 4 TF32 m16n8k8, 5 bfloat16 m16n8k16.
#define ACCUMULATORS 8

extern "C" __global__ void __launch_bounds__(512) ceiling(double* out, int rounds) {
  double c[ACCUMULATORS][4] = {}, d[ACCUMULATORS] = {};
  float f[ACCUMULATORS][4] = {}, s[ACCUMULATORS] = {};
  const double a = threadIdx.x * 1e-3, x = 1.0 + 1e-9 * threadIdx.x;
  const float fa = threadIdx.x * 1e-3f, fx = 1.0f + 1e-6f * threadIdx.x;
  const unsigned u = __float_as_uint(fa) & 0xffffe000u;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; ++i) {
#if UNIT == 0
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+d"(c[i][0]), "+d"(c[i][1])
                   : "d"(a), "d"(x));
#elif UNIT == 1
      asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                   : "+d"(c[i][0]), "+d"(c[i][1]), "+d"(c[i][2]), "+d"(c[i][3])
                   : "d"(a), "d"(x), "d"(a));
#elif UNIT == 2
      d[i] = fma(d[i], x, a);
#elif UNIT == 3
      s[i] = fmaf(s[i], fx, fa);
#elif UNIT == 4
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                   : "+f"(f[i][0]), "+f"(f[i][1]), "+f"(f[i][2]), "+f"(f[i][3])
                   : "r"(u));
#else
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                   : "+f"(f[i][0]), "+f"(f[i][1]), "+f"(f[i][2]), "+f"(f[i][3])
                   : "r"(u));
#endif
    }
  }
  double total = 0;
  for (int i = 0; i < ACCUMULATORS; ++i)
    total += c[i][0] + c[i][1] + c[i][2] + c[i][3] + d[i] + f[i][0] + f[i][1] + f[i][2] + f[i][3] + s[i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

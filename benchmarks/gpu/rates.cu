#ifndef ACC
#define ACC 8
#endif
// Ceilings of the matrix units: MODE picks the instruction, eight independent accumulators a warp.
extern "C" __global__ void __launch_bounds__(512) rates(double* out, int rounds) {
  double c[8][4] = {}, d[8] = {};
  float f[8][4] = {};
  double a = threadIdx.x * 1e-3, x = 1.0 + 1e-9 * threadIdx.x;
  unsigned u = __float_as_uint(threadIdx.x * 1e-3f) & 0xffffe000u;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < ACC; ++i) {
#if MODE == 0 || MODE == 5
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c[i][0]), "+d"(c[i][1]) : "d"(a), "d"(x));
#endif
#if MODE == 1
      asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" : "+d"(c[i][0]), "+d"(c[i][1]), "+d"(c[i][2]), "+d"(c[i][3]) : "d"(a), "d"(x), "d"(a));
#endif
#if MODE == 2 || MODE == 6
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%6,%5}, {%0,%1,%2,%3};" : "+d"(c[i][0]), "+d"(c[i][1]), "+d"(c[i][2]), "+d"(c[i][3]) : "d"(a), "d"(x), "d"(a));
#endif
#if MODE == 3
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%4,%5,%4,%5,%4,%5}, {%6,%5,%6,%5}, {%0,%1,%2,%3};" : "+d"(c[i][0]), "+d"(c[i][1]), "+d"(c[i][2]), "+d"(c[i][3]) : "d"(a), "d"(x), "d"(a));
#endif
#if MODE == 4
      d[i] = fma(d[i], x, a);
#endif
#if MODE == 6
#pragma unroll
      for (int j = 0; j < 4; ++j) d[(i + 2 * j) & 7] = fma(d[(i + 2 * j) & 7], x, a);
#endif
#if MODE == 7
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};" : "+f"(f[i][0]), "+f"(f[i][1]), "+f"(f[i][2]), "+f"(f[i][3]) : "r"(u));
#endif
#if MODE == 8
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};" : "+f"(f[i][0]), "+f"(f[i][1]), "+f"(f[i][2]), "+f"(f[i][3]) : "r"(u));
#endif
    }
  }
  double s = 0;
  for (int i = 0; i < 8; ++i) s += c[i][0] + c[i][1] + c[i][2] + c[i][3] + d[i] + f[i][0] + f[i][1] + f[i][2] + f[i][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}

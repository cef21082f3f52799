// Up to three weights side by side as one matrix, and the other way: a matrix cut into its parts.
#include "../../cuda/elements.cuh"
#ifndef THREADS
#define THREADS 256
#endif

typedef long long i64;

struct Args {
  Data *joined, *parts[3];  // packed matrices of as many rows
  i64 rows, widths[3];      // those that are not there have no columns
};

// Calls `move` with an element of the joined matrix and where it is among the parts.
template <typename Move>
__device__ __forceinline__ void each(const Args& a, Move move) {
  const i64 width = a.widths[0] + a.widths[1] + a.widths[2], i = blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x;
  if (i >= a.rows * width) return;
  i64 column = i % width;
  int part = 0;
  while (column >= a.widths[part]) column -= a.widths[part++];
  move(a.joined[i], a.parts[part][i / width * a.widths[part] + column]);
}

extern "C" __global__ void __launch_bounds__(THREADS) join(const __grid_constant__ Args a) {
  each(a, [](Data& joined, const Data& part) { joined = part; });
}

extern "C" __global__ void __launch_bounds__(THREADS) part(const __grid_constant__ Args a) {
  each(a, [](const Data& joined, Data& part) { part = joined; });
}

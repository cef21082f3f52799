// Operands of 16x8x8 products from swizzled tiles in shared memory: DMMA for float64, for float32 three products of TF32
// numbers, for 16 bits one.
//
// With g = lane / 4 and t = lane % 4 the hardware wants A[g, t], A[g + 8, t], A[g, t + 4], A[g + 8, t + 4] and B[t, g],
// B[t + 4, g], and gives C[g, 2t], C[g, 2t + 1], C[g + 8, 2t], C[g + 8, 2t + 1]. The order of k is free as long as A and B
// agree: k = t stands for 2t and k = t + 4 for 2t + 1, so that a result C is an operand A without moving anything.
#pragma once
#include "instructions.cuh"

struct __align__(2 * sizeof(Real)) Pair {
  Real x, y;
};

// Element c of row r lies at c ^ swizzle(r): all that the products read of a tile touches each bank once.
__device__ __forceinline__ int swizzle(int row) {
  return sizeof(Real) == 8 ? (row & 1) | (row & 4) | (row & 2) << 2 : (row & 2) << 2 | ((row >> 2 ^ row) & 1) << 4;
}
constexpr int kOdd = sizeof(Real) == 8 ? 1 : 16;  // how the swizzle of an odd row differs from that of the even one before

__device__ __forceinline__ int place(int row, int column, int pitch) { return row * pitch + (column ^ swizzle(row)); }

// A lane's part in a tile whose columns start at a multiple of 8 within a line.
struct Lane {
  int g, t;
  int along, across;  // its columns: of row g from 2t on, and g of row 2t
  __device__ __forceinline__ explicit Lane(int column = 0) {
    const int lane = threadIdx.x % 32;
    g = lane / 4, t = lane % 4;
    along = (2 * t) ^ swizzle(g) ^ column % kLine;
    across = g ^ swizzle(2 * t) ^ column % kLine;
  }
};

// Columns `offset` (a multiple of 8, a constant) past a lane's.
__device__ __forceinline__ int columns(int lane, int offset) { return (offset / kLine) * kLine + ((offset % kLine) ^ lane); }

// Elements (row + g, column + 2t) and the next of that row.
template <int Pitch>
__device__ __forceinline__ Pair along(const Real* tile, const Lane& lane, int row, int column) {
  const Real* line = tile + (row + lane.g) * Pitch;
  if constexpr (sizeof(Real) == 8) return {line[columns(lane.along, column)], line[columns(lane.along ^ 1, column)]};
  return *reinterpret_cast<const Pair*>(line + columns(lane.along, column));
}

// Elements (row + 2t, column + g) and the one below.
template <int Pitch>
__device__ __forceinline__ Pair across(const Real* tile, const Lane& lane, int row, int column) {
  const Real* line = tile + (row + 2 * lane.t) * Pitch;
  return {line[columns(lane.across, column)], line[Pitch + columns(lane.across ^ kOdd, column)]};
}

template <typename R, int Count>
struct Operand;

template <int Count>
struct Operand<double, Count> {
  double x[Count];
  __device__ __forceinline__ void set(int i, double value) { x[i] = value; }
};

// The nearest TF32 number, and what that leaves (of which the hardware reads the upper 11 bits).
template <int Count>
struct Operand<float, Count> {
  unsigned high[Count], low[Count];
  __device__ __forceinline__ void set(int i, float value) {
    high[i] = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    if (!kExact) low[i] = __float_as_uint(value - __uint_as_float(high[i]));
  }
};

typedef Operand<Real, 4> Left;
typedef Operand<Real, 2> Right;

__device__ __forceinline__ Left left_of(const Pair& top, const Pair& bottom) {
  Left a;
  a.set(0, top.x), a.set(1, bottom.x), a.set(2, top.y), a.set(3, bottom.y);
  return a;
}
__device__ __forceinline__ Left left_of(const Real (&c)[4]) { return left_of({c[0], c[1]}, {c[2], c[3]}); }
__device__ __forceinline__ Right right_of(const Pair& p) {
  Right b;
  b.set(0, p.x), b.set(1, p.y);
  return b;
}

// A sum of products that is added to a result. The matrix units truncate a float32 sum after every product: sums are kept
// short and added up by the ordinary units, and what is small is summed apart. low * low is below the rounding of float32.
template <typename R>
struct Sum;

template <>
struct Sum<double> {
  double c[4];
  __device__ __forceinline__ explicit Sum(const double (&result)[4]) {
    for (int i = 0; i < 4; ++i) c[i] = result[i];
  }
  __device__ __forceinline__ void add(const Operand<double, 4>& a, const Operand<double, 2>& b) {
    multiply_double(c, a.x[0], a.x[1], b.x[0]);
    multiply_double(c, a.x[2], a.x[3], b.x[1]);
  }
  __device__ __forceinline__ void finish(double (&result)[4]) const {
    for (int i = 0; i < 4; ++i) result[i] = c[i];
  }
};

template <>
struct Sum<float> {
  float c[4], small[4];
  __device__ __forceinline__ explicit Sum(const float (&)[4]) : c{}, small{} {}
  __device__ __forceinline__ void add(const Operand<float, 4>& a, const Operand<float, 2>& b) {
    if constexpr (!kExact) {
      multiply_tf32(small, a.low, b.high);
      multiply_tf32(small, a.high, b.low);
    }
    multiply_tf32(c, a.high, b.high);
  }
  __device__ __forceinline__ void finish(float (&result)[4]) const {
    for (int i = 0; i < 4; ++i) result[i] += kExact ? c[i] : c[i] + small[i];
  }
};

constexpr int kChain = sizeof(Real) == 8 || kExact ? kDepth : 4;  // products along the features in one sum

// Rows and columns of a matrix into a tile; zeros past its limits. All `Threads` threads of the block take part.
template <int Rows, int Columns, int Pitch, int Threads>
__device__ __forceinline__ void load_tile(Real* tile, const Data* from, const Strides& strides, i64 rows, i64 limit) {
  constexpr bool kAsync = ALIGNED && !kExact;
  constexpr int kUnit = !ALIGNED ? 1 : kExact ? 8 : sizeof(Real) == 8 ? 1 : 4;  // neighbours that stay together
#pragma unroll 4
  for (int i = threadIdx.x; i < Rows * Columns / kUnit; i += Threads) {
    const int row = i / (Columns / kUnit), column = i % (Columns / kUnit) * kUnit;
    const bool inside = row < rows && column < limit;
    Real* to = tile + place(row, column, Pitch);
    const Data* source = from + (inside ? row * strides.n + column * (ALIGNED ? 1 : strides.d) : 0);
    if constexpr (kAsync) {
      copy_async<kUnit * sizeof(Real)>(to, source, inside);
    } else if constexpr (ALIGNED) {
      uint4 bits = inside ? *reinterpret_cast<const uint4*>(source) : uint4{0, 0, 0, 0};
      const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
      for (int e = 0; e < kUnit; ++e) to[e] = wide(static_cast<Data>(words[e / 2] >> 16 * (e % 2)));
    } else {
      *to = inside ? wide(*source) : Real(0);
    }
  }
}

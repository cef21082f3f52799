// float32 on the 16-bit matrix units: every operand is a sum of two float16 numbers (22 bits), a product is three products,
// sums are float32. Powers of two scale rows of left operands, tokens, and whole weights into the range of float16; what is
// below 2^-39 of the largest magnitude so scaled together loses bits.
#pragma once
#include "tiled_fragments.cuh"

typedef unsigned short Half;

constexpr int kWidth = 64;               // halves of a row of a tile and of a plane: 128 bytes
constexpr int kSixteens = kDim / 16;
constexpr int kTop = 13;                 // scaled magnitudes are below 2^(kTop + 1)
static_assert(STORAGE == 3 && kDim <= kWidth && CHUNK == kWidth && kFeatures == kWidth && PARTNERS == 2, "tiles of 64 columns");

// Planes of halves, the larger ones first: z and grad_out [rows][64], w_gate and w_up [64][hidden], w_down [hidden][64],
// rows and hidden padded with zeros. scales: of w_gate and w_up, of w_down, two unused; then of every z and grad_out; then
// what normalises every x. All are what undoes the scaling.
struct Planes {
  i64 rows, hidden;
  Half *z, *grad_out, *gate, *up, *down;
  float *of_weights, *of_z, *of_grad_out, *inverse;
  __device__ __forceinline__ explicit Planes(const Args& a) {
    rows = (a.rows + 127) / 128 * 128, hidden = (a.hidden + kWidth - 1) / kWidth * kWidth;
    z = a.planes, grad_out = z + 2 * rows * kWidth;
    gate = grad_out + 2 * rows * kWidth, up = gate + 2 * hidden * kWidth, down = up + 2 * hidden * kWidth;
    of_weights = a.scales, of_z = of_weights + 4, of_grad_out = of_z + rows, inverse = of_grad_out + rows;
  }
};

// A power of two that takes magnitudes up to `largest` into range, and its inverse.
struct Scale {
  float up, down;
  __device__ __forceinline__ explicit Scale(float largest) {
    const int exponent = min(max(static_cast<int>(__float_as_uint(largest) >> 23), kTop + 1), 254);
    up = __uint_as_float(static_cast<unsigned>(254 + kTop - exponent) << 23);
    down = __uint_as_float(static_cast<unsigned>(exponent - kTop) << 23);
  }
};

__device__ __forceinline__ void split(float x, float y, unsigned& high, unsigned& low) {
  high = pack_halves(x, y);
  low = pack_halves(x - unpack_half(high), y - unpack_half(high >> 16));
}

struct Split {
  unsigned high[4], low[4];
};

// Left operand 16 by 16 from results for two neighbouring 16 by 8, scaled by row half.
__device__ __forceinline__ Split split_left(const float (&first)[4], const float (&second)[4], float top, float bottom) {
  Split s;
  split(first[0] * top, first[1] * top, s.high[0], s.low[0]);
  split(first[2] * bottom, first[3] * bottom, s.high[1], s.low[1]);
  split(second[0] * top, second[1] * top, s.high[2], s.low[2]);
  split(second[2] * bottom, second[3] * bottom, s.high[3], s.low[3]);
  return s;
}

// The largest magnitude of a row of 16, of which four lanes hold four each.
__device__ __forceinline__ float row_largest(float a, float b, float c, float d) {
  float x = fmaxf(fmaxf(fabs(a), fabs(b)), fmaxf(fabs(c), fabs(d)));
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// Where a lane's row of 8 starts in the four tiles that it loads: tiles follow each other down first, or along first. Unit c
// (16 bytes) of row r lies at c ^ r % 8.
struct Place {
  int down, along;  // bytes
  __device__ __forceinline__ Place() {
    const int lane = threadIdx.x % 32, row = lane % 8, low = lane / 8 % 2, high = lane / 16;
    down = (row + 8 * low) * 128 + ((row ^ high) << 4);
    along = (row + 8 * high) * 128 + ((row ^ low) << 4);
  }
};

// 16 by 16 from a row (a multiple of 8) and a unit (even) on; the smaller halves lie `plane` bytes further.
template <bool Columns>
__device__ __forceinline__ Split load_split(const unsigned char* tile, int plane, int place, int row, int unit) {
  Split s;
  const unsigned char* at = tile + row * 128 + (place ^ (unit << 4));
  load_halves<Columns>(s.high, at);
  load_halves<Columns>(s.low, at + plane);
  return s;
}

// A left operand from its rows, or from its columns as rows; a right one of 16 columns likewise.
__device__ __forceinline__ Split left(const unsigned char* tile, int plane, const Place& p, int row, int unit) {
  return load_split<false>(tile, plane, p.down, row, unit);
}
__device__ __forceinline__ Split left_turned(const unsigned char* tile, int plane, const Place& p, int depth, int unit) {
  return load_split<true>(tile, plane, p.along, depth, unit);
}
__device__ __forceinline__ Split right(const unsigned char* tile, int plane, const Place& p, int depth, int unit) {
  return load_split<true>(tile, plane, p.down, depth, unit);
}
__device__ __forceinline__ Split right_turned(const unsigned char* tile, int plane, const Place& p, int column, int unit) {
  return load_split<false>(tile, plane, p.along, column, unit);
}

// 16 by 16 by 8; the small products into `small`. low * low is below the rounding of float32.
__device__ __forceinline__ void add_split(float (&c)[4], float (&small)[4], const Split& a, const Split& b, int half) {
  multiply_half(small, a.low, b.high[2 * half], b.high[2 * half + 1]);
  multiply_half(small, a.high, b.low[2 * half], b.low[2 * half + 1]);
  multiply_half(c, a.high, b.high[2 * half], b.high[2 * half + 1]);
}

// Rows of both halves of a plane into a tile, the smaller ones behind the larger.
template <int Rows, int Threads>
__device__ __forceinline__ void load_planes(unsigned char* tile, const Half* from, i64 pitch, i64 plane) {
#pragma unroll
  for (int i = threadIdx.x; i < 2 * Rows * 8; i += Threads) {
    const int half = i / (Rows * 8), row = i / 8 % Rows, unit = i % 8;
    copy_async<16>(tile + (half * Rows + row) * 128 + ((unit ^ row % 8) << 4), from + half * plane + row * pitch + unit * 8, true);
  }
}

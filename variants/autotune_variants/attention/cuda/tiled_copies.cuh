// Tiles of strided tensors in shared memory.
#pragma once
#include "arguments.cuh"
#include "tiled_config.cuh"

typedef Arguments<Data, Real, Real> Args;  // scratch: Q K^T or weights, [B, H, Nq, score_pitch(Nk)], where they are stored

__device__ __forceinline__ i64 score_pitch(const Args& a) { return (a.nk + 7) / 8 * 8; }

// A shared row holds 16-byte units; unit c of row r lies at c ^ swizzle(r). With it, all ways in which the matrix units
// read a tile (rows of one column group, pairs of rows, pairs of columns) touch each bank once.
template <int Size>
__device__ __forceinline__ int swizzle_of(int row) {
  return Size == 2 ? row & 7 : (row & 6) ^ ((row & 1) << 2);
}
__device__ __forceinline__ int swizzle(int row) { return swizzle_of<kStored>(row); }

// Address of byte `offset` (a constant) past a lane's place in a row: the low 7 bits are swizzled.
__device__ __forceinline__ unsigned at(unsigned lane_address, int offset) {
  return (lane_address ^ (offset & 127)) + (offset & ~127);
}

// One 16-byte unit: `left` bytes of it exist (zeros after them, and everywhere if not `inside`).
__device__ __forceinline__ void load_unit(unsigned to, const Data* from, i64 stride_d, bool inside, int left) {
#if ALIGNED
  copy_async_16(to, from, !inside || (HEAD_DIM != kDim && left <= 0) ? 0 : HEAD_DIM != kDim && left < 16 ? left : 16);
#else
#pragma unroll
  for (int e = 0; e < 16 / kStored; ++e) {
    const bool valid = inside && e * kStored < left;
#if STORAGE
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + e * kStored), "h"(valid ? from[e * stride_d] : Data(0)) : "memory");
#else
    copy_async_small<kSize>(to + e * kSize, from + e * stride_d, valid ? kSize : 0);
#endif
  }
#endif
}

// A copy of rows [row, row + Rows) of a head into shared memory by `Threads` threads; rows from
// `limit` on and columns past HEAD_DIM become zero. With a size of 0 a copy reads nothing, so an address outside the
// tensor is harmless.
template <int Rows, int Threads>
struct TileCopy {
  static constexpr int per_unit = 16 / kStored, units = kDim * kStored / 16, lines = Threads / units;
  static constexpr bool even = Threads % units == 0 && Rows % (lines ? lines : 1) == 0 && (lines & (lines - 1)) == 0;
  static constexpr int rows = even ? lines : Rows, slices = Rows / rows;
  const Data* from;
  const i64 &stride_n, &stride_d;
  unsigned to;
  int remaining;

  __device__ __forceinline__ TileCopy(unsigned tile, const Data* head, const i64& stride_n, const i64& stride_d, i64 row, i64 limit)
      : stride_n(stride_n), stride_d(stride_d), to(tile) {
    const int thread = threadIdx.x % Threads, r = even ? thread / units : 0, column = even ? thread % units * per_unit : 0;
    from = head + (row + r) * stride_n + column * (ALIGNED ? 1 : stride_d);
    remaining = static_cast<int>(max(min(limit - row, static_cast<i64>(Rows)), 0ll)) - r;
    if (even) to += r * kPitch + (((thread % units) ^ swizzle(r)) << 4);
  }

  __device__ __forceinline__ void slice(int i) const {
    const int thread = threadIdx.x % Threads;
    if constexpr (even) {
      // swizzle(a ^ b) = swizzle(a) ^ swizzle(b), and r + i * rows never carries into the bits of r
      load_unit((to ^ (swizzle(i * rows) << 4)) + i * rows * kPitch, from + i * rows * stride_n, stride_d, remaining > i * rows,
                (HEAD_DIM - thread % units * per_unit) * kStored);
    } else {
#pragma unroll 2
      for (int index = thread; index < Rows * units; index += Threads) {
        const int r = index / units, c = index % units;
        load_unit(to + r * kPitch + ((c ^ swizzle(r)) << 4), from + r * stride_n + c * per_unit * (ALIGNED ? 1 : stride_d), stride_d, r < remaining,
                  (HEAD_DIM - c * per_unit) * kStored);
      }
    }
  }

  __device__ __forceinline__ void all() const {
#pragma unroll
    for (int i = 0; i < slices; ++i) slice(i);
  }
};

// Gives the rows a block owns the sign of the scale, so that larger scores always mean larger weights.
__device__ __forceinline__ void negate_owned(unsigned tile, double scale) {
  if (scale >= 0) return;
  negate_tile<kStored, kThreads>(tile, kBlock * kPitch, scale);
  __syncthreads();
}

typedef TileCopy<kBlock, kThreads> BlockCopy;       // the rows a block owns
typedef TileCopy<kShare, kGroupThreads> ShareCopy;  // a group's share of a step

// Waits for the warps of a group only: groups drift apart, and one computes weights while another multiplies.
__device__ __forceinline__ void sync_group() {
  if constexpr (ROW_WARPS == 1) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + static_cast<int>(threadIdx.x) / kGroupThreads), "n"(kGroupThreads) : "memory");
  }
}

// Slices of two tiles spread evenly over `count` calls; the i-th call issues its part.
__device__ __forceinline__ void copy_part(const ShareCopy& first, const ShareCopy& second, int i, int count) {
  constexpr int total = 2 * ShareCopy::slices;
#pragma unroll
  for (int n = 0; n < total; ++n) {
    if (n * count / total != i) continue;
    n < total / 2 ? first.slice(n) : second.slice(n - total / 2);
  }
}

// A group's share of a contiguous vector from `first` on; values from `limit` on are zero.
__device__ __forceinline__ void load_vector(unsigned to, const Real* from, i64 first, i64 limit) {
  for (int i = threadIdx.x % kGroupThreads; i < kShare; i += kGroupThreads) {
    const bool inside = first + i < limit;
    copy_async_small<kSize>(to + i * kSize, inside ? from + first + i : from, inside ? kSize : 0);
  }
}

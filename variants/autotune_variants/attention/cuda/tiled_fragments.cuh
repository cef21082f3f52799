// Fragments of the 16x8x8 products, the same thread layout for float64 (DMMA) and float32 (three TF32 products).
//
// With g = lane / 4 and t = lane % 4 the hardware wants A[g, t], A[g + 8, t], A[g, t + 4], A[g + 8, t + 4],
// B[t, g], B[t + 4, g] and gives C[g, 2t], C[g, 2t + 1], C[g + 8, 2t], C[g + 8, 2t + 1]. The order of k is free as
// long as A and B agree, so k = t may stand for 2t and k = t + 4 for 2t + 1: operands are read two neighbours at a
// time, and a result C is an operand A of the next product without moving anything between lanes.
#pragma once
#include "tiled_copies.cuh"
#include "../../cuda/conversions.cuh"

struct Pair {
  Real x, y;
};

__device__ __forceinline__ void load_two(unsigned address, double& x, double& y) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(x), "=d"(y) : "r"(address));
}
__device__ __forceinline__ void load_two(unsigned address, float& x, float& y) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address));
}
__device__ __forceinline__ Pair load_pair(unsigned address) {
  Pair p;
  load_two(address, p.x, p.y);
  return p;
}

// k = t and k = t + 4 along a row: two neighbours in float32; in float64 two separate loads, because the compiler copies
// the halves of a 16-byte load anew for every product that wants them in another order.
__device__ __forceinline__ void load_along(unsigned base, int offset, double& x, double& y) {
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(at(base, offset)));
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(y) : "r"(at(base, offset + 32)));
}
__device__ __forceinline__ void load_along(unsigned base, int offset, float& x, float& y) { load_two(at(base, offset), x, y); }

// The same from tiles as tensors store them.
__device__ __forceinline__ Real read(const Data* x) { return wide(*x); }
#if STORAGE
__device__ __forceinline__ unsigned stored_bits(unsigned address) {
  unsigned bits;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(bits) : "r"(address));
  return bits;
}
__device__ __forceinline__ Pair stored_pair(unsigned address) {
  const unsigned bits = stored_bits(address);
  Pair p;
#if STORAGE == 2
  asm("{ .reg .b16 x, y; mov.b32 {x, y}, %2; cvt.f32.f16 %0, x; cvt.f32.f16 %1, y; }" : "=f"(p.x), "=f"(p.y) : "r"(bits));
#else
  p = {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
#endif
  return p;
}
#else
__device__ __forceinline__ Pair stored_pair(unsigned address) { return load_pair(address); }
#endif

// Two neighbours; in float64 apart, for the reason above.
__device__ __forceinline__ void store_two(unsigned address, double x, double y) {
  asm volatile("st.shared.f64 [%0], %1;" ::"r"(address), "d"(x) : "memory");
  asm volatile("st.shared.f64 [%0+8], %1;" ::"r"(address), "d"(y) : "memory");
}
__device__ __forceinline__ void store_two(unsigned address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

template <typename R, int Count>
struct Operand;

template <int Count>
struct Operand<double, Count> {
  double x[Count];
  __device__ __forceinline__ void set(int i, double value) { x[i] = value; }
  __device__ __forceinline__ void set_stored(int i, double value) { x[i] = value; }
};

// float32 as the nearest TF32 number and the remainder that leaves (of which the hardware reads the upper 11 bits).
template <int Count>
struct Operand<float, Count> {
  unsigned high[Count], low[Count];
  __device__ __forceinline__ void set(int i, float value) {
    high[i] = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    if (!STORAGE) low[i] = __float_as_uint(value - __uint_as_float(high[i]));
  }
  // What a tensor holds: of 16 bits it is a TF32 number as it is.
  __device__ __forceinline__ void set_stored(int i, float value) {
    if (STORAGE) {
      high[i] = __float_as_uint(value);
    } else {
      set(i, value);
    }
  }
};

// Any operation's NaN is 0x7fffffff, which rounding to TF32 would carry into the sign and make 0: another one for 16-bit
// tensors, where no remainder tells of it.
template <int Tiles>
__device__ __forceinline__ void keep_nan(Real (&s)[Tiles][4]) {
#if STORAGE
#pragma unroll
  for (int i = 0; i < 4 * Tiles; ++i) s[i / 4][i % 4] = __int_as_float(min(__float_as_int(s[i / 4][i % 4]), 0x7fffefff));
#endif
}

#if STORAGE
// Numbers of 16 bits as tensors hold them, two in a register.
template <int Count>
struct Packed {
  unsigned x[Count];
};
typedef Packed<4> OperandA;
typedef Packed<2> OperandB;
#elif !SIMT
typedef Operand<Real, 4> OperandA;
typedef Operand<Real, 2> OperandB;
#endif

__device__ __forceinline__ void multiply(double (&c)[4], const Operand<double, 4>& a, const Operand<double, 2>& b) {
#if __CUDA_ARCH__ >= 900
  // Two products of depth 4: as fast as one of depth 8 (65 of 66 TFLOP/s on an H200, where m8n8k4 reaches 33), and
  // their operands need no runs of 8 registers, which the compiler could only fill with moves.
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a.x[2 * k]), "d"(a.x[2 * k + 1]), "d"(b.x[k]));
  }
#else
#pragma unroll
  for (int k = 0; k < 2; ++k) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                   : "+d"(c[2 * m]), "+d"(c[2 * m + 1])
                   : "d"(a.x[2 * k + m]), "d"(b.x[k]));
    }
  }
#endif
}

__device__ __forceinline__ void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#if STORAGE
// Sixteen columns of two tensors: products of 16 bits are exact in float32.
#if STORAGE == 2
#define PACKED_TYPES "f32.f16.f16.f32"
#else
#define PACKED_TYPES "f32.bf16.bf16.f32"
#endif
__device__ __forceinline__ void multiply_packed(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col." PACKED_TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#if !SIMT
// A sum of products. The hardware truncates a float32 sum after every product: the two small products are summed
// apart, so that the large sum is truncated once per 8 terms; low * low is below the rounding of float32.
template <typename R>
struct Sum;

template <>
struct Sum<double> {
  double c[4];
  __device__ __forceinline__ void add(const Operand<double, 4>& a, const Operand<double, 2>& b) { multiply(c, a, b); }
  __device__ __forceinline__ double value(int i) const { return c[i]; }
};

template <>
struct Sum<float> {
  float c[4], small[4];
  __device__ __forceinline__ void add(const Operand<float, 4>& a, const Operand<float, 2>& b) {
    if constexpr (!STORAGE) {
      multiply_tf32(small, a.low, b.high);
      multiply_tf32(small, a.high, b.low);
    }
    multiply_tf32(c, a.high, b.high);
  }
#if STORAGE
  __device__ __forceinline__ void add(const Packed<4>& a, const Packed<2>& b) { multiply_packed(c, a.x, b.x); }
#endif
  __device__ __forceinline__ float value(int i) const { return STORAGE ? c[i] : c[i] + small[i]; }
};
#endif

// A lane's place in a tile for the two ways of reading it. `along`: k runs along a shared row (rows are m or n);
// `across`: k runs over shared rows (columns are m or n).
struct Lane {
  int g, t;
  unsigned along, right, across, score_across, natural;
  __device__ __forceinline__ Lane() {
    const int lane = threadIdx.x & 31;
    g = lane >> 2;
    t = lane & 3;
    along = g * kPitch + ((kStored == 2 ? 4 * t : 8 * t) ^ (swizzle(g) << 4));
    right = along;
    across = 2 * t * kPitch + ((2 * g * kStored) ^ (swizzle(2 * t) << 4));
    natural = 2 * t * kPitch + ((g * kStored) ^ (swizzle(2 * t) << 4));
    score_across = (2 * g * kSize) ^ (swizzle_of<kSize>(2 * t) << 4);  // plus 2t rows of the score tile's pitch
#if SIMT
    along = g * kPitch + (swizzle(g) << 4);
    right = 2 * t * kPitch + (swizzle(2 * t) << 4);
    across = t << 4;
#endif
  }
};

// Below, `base` is a lane's address in a tile and `offset` a constant number of bytes past it. All of a tile's rows
// start at multiples of 128 bytes, so that `at` turns constants into immediate offsets of few addresses.

#if STORAGE
// A[m, k] from rows m of a tile: 16 rows, 16 columns k, of which k = 2t, 2t + 1 and the two after 8 are neighbours in memory.
__device__ __forceinline__ OperandA left_along(unsigned base, int offset) {
  OperandA a;
#pragma unroll
  for (int i = 0; i < 4; ++i) a.x[i] = stored_bits(at(base, offset + (i & 1) * 8 * kPitch + (i >> 1) * 16));
  return a;
}

// B[k, n] from rows n of a tile: 8 rows, 16 columns k.
__device__ __forceinline__ OperandB right_along(unsigned base, int offset) {
  return {{stored_bits(at(base, offset)), stored_bits(at(base, offset + 16))}};
}
#elif !SIMT
// A[m, k] from rows m of a tile: 16 rows, 8 columns k.
__device__ __forceinline__ OperandA left_along(unsigned base, int offset) {
  Pair top, bottom;
  load_along(base, offset, top.x, top.y);
  load_along(base, offset + 8 * kPitch, bottom.x, bottom.y);
  OperandA a;
  a.set(0, top.x), a.set(1, bottom.x), a.set(2, top.y), a.set(3, bottom.y);
  return a;
}

// B[k, n] from rows n of a tile: 8 rows, 8 columns k.
__device__ __forceinline__ OperandB right_along(unsigned base, int offset) {
  Pair p;
  load_along(base, offset, p.x, p.y);
  OperandB b;
  b.set(0, p.x), b.set(1, p.y);
  return b;
}
#endif

// B[k, n] for two neighbouring n-tiles from rows k of a tile. Logical column g of tile i is column 2g + i, so a lane
// of the two results holds columns 4t .. 4t + 3: first[0], second[0], first[1], second[1].
__device__ __forceinline__ void right_across(unsigned base, int offset, Operand<Real, 2>& first, Operand<Real, 2>& second) {
  const Pair even = stored_pair(at(base, offset)), odd = stored_pair(at(base ^ (kStored == 2 ? 16 : 64), offset + kPitch));
  first.set_stored(0, even.x), first.set_stored(1, odd.x);
  second.set_stored(0, even.y), second.set_stored(1, odd.y);
}

// B[k, n] for one n-tile in its natural order of columns, from rows k of a float64 tile.
__device__ __forceinline__ Operand<double, 2> right_natural(unsigned base, int offset) {
  double even, odd;
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(even) : "r"(at(base, offset)));
  asm volatile("ld.shared.f64 %0, [%1];" : "=d"(odd) : "r"(at(base ^ 64, offset + kPitch)));
  Operand<double, 2> b;
  b.set(0, even), b.set(1, odd);
  return b;
}

// A[m, k] from rows k of a tile of the given pitch: logical rows g and g + 8 are columns 2g and 2g + 1.
template <int Pitch>
__device__ __forceinline__ Operand<Real, 4> left_across(unsigned base, int offset) {
  const Pair even = load_pair(at(base, offset)), odd = load_pair(at(base ^ 64, offset + Pitch));
  Operand<Real, 4> a;
  a.set(0, even.x), a.set(1, even.y), a.set(2, odd.x), a.set(3, odd.y);
  return a;
}

// A result tile as the left operand of the next product.
template <typename R>
__device__ __forceinline__ Operand<R, 4> as_left(const R (&c)[4]) {
  Operand<R, 4> a;
  a.set(0, c[0]), a.set(1, c[2]), a.set(2, c[1]), a.set(3, c[3]);
  return a;
}

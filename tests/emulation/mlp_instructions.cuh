// What the MLP's instructions.cuh has in PTX, by what its manual says that lanes hold.
#pragma once
#include "copies.cuh"

template <int Bytes>
void copy_async(void* to, const void* from, bool inside) {
  groups.back().push_back({to, inside ? from : nullptr, Bytes});
}

// m16n8k4: lane 4 g + t holds A[g][t], A[g + 8][t] and B[t][g], and C[g][2 t], C[g][2 t + 1] and those of row g + 8.
inline void multiply_double(double (&c)[4], double top, double bottom, double b) {
  const double values[3] = {top, bottom, b};
  exchanged(values, [&](auto shown) {
    for (int e = 0; e < 4; ++e) {
      const int row = own_lane() / 4 * 4, column = (2 * (own_lane() % 4) + (e & 1)) * 4;
      for (int k = 0; k < 4; ++k) c[e] += shown(row + k, e >> 1) * shown(column + k, 2);
    }
    return 0;
  });
}

// m16n8k8 of TF32 numbers, of which the hardware reads the upper 19 bits: as m16n8k4, columns and rows from 4 on in the
// second half of the registers.
inline void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const unsigned values[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  exchanged(values, [&](auto shown) {
    const auto number = [&](int lane, int i) { return bits_as<float>(shown(lane, i) & 0xffffe000u); };
    for (int e = 0; e < 4; ++e) {
      const int row = own_lane() / 4 * 4, column = (2 * (own_lane() % 4) + (e & 1)) * 4;
      for (int k = 0; k < 8; ++k) c[e] += number(row + k % 4, (e >> 1) + k / 4 * 2) * number(column + k % 4, 4 + k / 4);
    }
    return 0;
  });
}

inline unsigned pack_halves(float low, float high) {
  return bits_as<unsigned short>(static_cast<_Float16>(low)) | bits_as<unsigned short>(static_cast<_Float16>(high)) << 16;
}
inline float unpack_half(unsigned bits) { return static_cast<float>(bits_as<_Float16>(static_cast<unsigned short>(bits))); }

template <bool Columns>
void load_halves(unsigned (&x)[4], const void* row) {
  const void* rows[1] = {row};
  exchanged(rows, [&](auto shown) {
    const auto half = [&](int tile, int r, int c) { return static_cast<unsigned>(static_cast<const unsigned short*>(shown(8 * tile + r, 0))[c]); };
    const int g = own_lane() / 4, t = own_lane() % 4;
    for (int i = 0; i < 4; ++i) {
      x[i] = Columns ? half(i, 2 * t, g) | half(i, 2 * t + 1, g) << 16 : half(i, g, 2 * t) | half(i, g, 2 * t + 1) << 16;
    }
    return 0;
  });
}

// m16n8k16 of float16 numbers, two to a register: rows from 8 on in odd ones, columns from 8 on in the second half.
inline void multiply_half(float (&c)[4], const unsigned (&a)[4], unsigned top, unsigned bottom) {
  const unsigned values[6] = {a[0], a[1], a[2], a[3], top, bottom};
  exchanged(values, [&](auto shown) {
    const auto number = [&](int lane, int i, int odd) { return unpack_half(shown(lane, i) >> 16 * odd); };
    for (int e = 0; e < 4; ++e) {
      const int row = own_lane() / 4 * 4, column = (2 * (own_lane() % 4) + (e & 1)) * 4;
      for (int k = 0; k < 16; ++k) c[e] += number(row + k % 8 / 2, (e >> 1) + k / 8 * 2, k & 1) * number(column + k % 8 / 2, 4 + k / 8, k & 1);
    }
    return 0;
  });
}

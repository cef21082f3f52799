// What decode's instructions.cuh has in PTX, by what its manual says that lanes hold.
#pragma once
#include "conversions.cuh"
#include "copies.cuh"
#include "dependent.cuh"
#if STORAGE == 1
inline Real power(Real x) { return exp2f(x); }
inline unsigned packed(float low, float high) { return to_bfloat16(low) | to_bfloat16(high) << 16; }

// m16n8k16, row by column: lane 4 g + t holds rows g and g + 8, columns 2 t and 2 t + 1 of a result.
inline void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  const unsigned values[6] = {a0, a1, a2, a3, b0, b1};
  exchanged(values, [&](auto shown) {
    const auto half = [](unsigned pair, int odd) { return from_bfloat16(odd ? pair >> 16 : pair & 0xffff); };
    for (int e = 0; e < 4; ++e) {
      const int row = own_lane() / 4 + 8 * (e >> 1), column = 2 * (own_lane() % 4) + (e & 1);
      for (int k = 0; k < 16; ++k) {
        const float a = half(shown(row % 8 * 4 + k % 8 / 2, (row >= 8) + 2 * (k >= 8)), k & 1);
        c[e] += a * half(shown(column * 4 + k % 8 / 2, 4 + (k >= 8)), k & 1);
      }
    }
    return 0;
  });
}

inline unsigned transposed(unsigned tile) {
  const unsigned values[1] = {tile};
  return exchanged(values, [](auto shown) {
    const int row = own_lane() / 4, column = 2 * (own_lane() % 4);
    const auto at = [&](int r, int c) { return shown(r * 4 + c / 2, 0) >> 16 * (c & 1) & 0xffff; };
    return at(column, row) | at(column + 1, row) << 16;
  });
}
#else
inline Real power(Real x) { return sizeof(Data) == 8 ? exp2(x) : exp2f(static_cast<float>(x)); }

// m8n8k4: lane 4 g + t holds A[g][t], B[t][g] and C[g][2 t], C[g][2 t + 1].
inline void multiply(double (&c)[2], double a, double b) {
  const double values[2] = {a, b};
  exchanged(values, [&](auto shown) {
    for (int e = 0; e < 2; ++e) {
      for (int k = 0; k < 4; ++k) c[e] += shown(own_lane() / 4 * 4 + k, 0) * shown((2 * (own_lane() % 4) + e) * 4 + k, 1);
    }
    return 0;
  });
}
#endif

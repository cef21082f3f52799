// Runs a CUDA kernel's source on the host: a thread for each of a block's, one block after another. Threads of a warp
// meet at every shuffle, as they would on a GPU, so that what a kernel assumes about lanes can be checked without one.
#pragma once
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

using std::exp2;
using std::max;
using std::min;
using std::sqrt;

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

struct Index {
  int x;
};
inline thread_local Index threadIdx, blockIdx, blockDim;

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct Warp {
  std::barrier<> lanes{32};
  unsigned long long word[32][6];  // what each lane shows the others
};
inline std::vector<std::unique_ptr<Warp>> warps;
inline std::unique_ptr<std::barrier<>> block;
alignas(16) inline unsigned char shared[1 << 18];

inline Warp& own_warp() { return *warps[threadIdx.x / 32]; }
inline int own_lane() { return threadIdx.x % 32; }

// Shows `values` to the warp, lets `read` look at those of all lanes, and goes on when every lane has.
template <typename T, int N, typename Read>
auto exchanged(const T (&values)[N], Read read) {
  Warp& warp = own_warp();
  for (int i = 0; i < N; ++i) std::memcpy(&warp.word[own_lane()][i], &values[i], sizeof(T));
  warp.lanes.arrive_and_wait();
  const auto result = read([&](int lane, int i) {
    T value;
    std::memcpy(&value, &warp.word[lane][i], sizeof(T));
    return value;
  });
  warp.lanes.arrive_and_wait();
  return result;
}

template <typename T>
T __shfl_sync(unsigned, T value, int source) {
  const T values[1] = {value};
  return exchanged(values, [&](auto shown) { return shown(source & 31, 0); });
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return __shfl_sync(mask, value, own_lane() ^ bits);
}
inline bool __any_sync(unsigned, bool value) {
  const int values[1] = {value};
  return exchanged(values, [](auto shown) {
    bool any = false;
    for (int lane = 0; lane < 32; ++lane) any |= shown(lane, 0) != 0;
    return any;
  });
}
inline void __syncthreads() { block->arrive_and_wait(); }

template <typename To, typename From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
template <typename T>
T __ldg(const T* from) {
  return *from;
}
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
inline double __hiloint2double(int high, int low) {
  return bits_as<double>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
inline float from_bfloat16(unsigned half) { return bits_as<float>(half << 16); }
inline unsigned to_bfloat16(float x) {
  const unsigned bits = bits_as<unsigned>(x);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

template <typename Kernel>
void run(int blocks, int threads, Kernel kernel) {
  for (int number = 0; number < blocks; ++number) {
    block = std::make_unique<std::barrier<>>(threads);
    warps.clear();
    for (int i = 0; i < threads; i += 32) warps.push_back(std::make_unique<Warp>());
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([=] {
        threadIdx.x = i, blockIdx.x = number, blockDim.x = threads;
        kernel();
      });
    }
    for (auto& each : running) each.join();
  }
}

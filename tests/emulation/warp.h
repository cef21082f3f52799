// Runs a CUDA kernel's source on the host: a thread for each of a block's, one cluster of blocks after another. Threads of
// a warp meet at every shuffle, as they would on a GPU, so that what a kernel assumes about lanes can be checked without
// one. Asynchronous copies are made no earlier than they are waited for.
#pragma once
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using std::exp;
using std::exp2;
using std::fabs;
using std::max;
using std::min;
using std::sqrt;

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(bytes) alignas(bytes)

struct Index {
  int x = 0, y = 0, z = 0;
};
inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct Warp {
  std::barrier<> lanes{32};
  unsigned long long word[32][6];  // what each lane shows the others
};
struct Block {
  std::barrier<> threads;
  std::vector<Warp> warps;
  alignas(16) unsigned char shared[1 << 18] = {};
  explicit Block(int count) : threads(count), warps(count / 32) {}
};
struct Cluster {
  std::barrier<> threads;
  std::vector<std::unique_ptr<Block>> blocks;
  Cluster(int size, int count) : threads(size * count) {
    for (int i = 0; i < size; ++i) blocks.push_back(std::make_unique<Block>(count));
  }
};
inline thread_local Cluster* cluster;
inline thread_local Block* block;

inline Warp& own_warp() { return block->warps[threadIdx.x / 32]; }
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
inline void __syncthreads() { block->threads.arrive_and_wait(); }
inline void __syncwarp() { own_warp().lanes.arrive_and_wait(); }

// What the blocks of a cluster send each other; those that wait for bytes that never come find nothing but NaN.
inline thread_local std::optional<std::barrier<>::arrival_token> opened;
inline void open_inbox(unsigned long long* barrier, int bytes) {
  if (threadIdx.x == 0) *barrier = bytes;
  opened = cluster->threads.arrive();
}
inline void cluster_wait() { cluster->threads.wait(std::move(*opened)); }
template <typename T>
void send(T* to, int number, T x, unsigned long long* barrier) {
  const auto there = [&](auto* own) {
    return reinterpret_cast<decltype(own)>(reinterpret_cast<unsigned char*>(own) - block->shared + cluster->blocks[number]->shared);
  };
  *there(to) = x;
  std::atomic_ref(*there(barrier)) -= sizeof x;
}
inline void wait_inbox(unsigned long long* barrier) {
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::atomic_ref(*barrier) != 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (std::chrono::steady_clock::now() < latest) continue;
    std::memset(block->shared, 0xff, sizeof block->shared);
    return;
  }
}

template <typename To, typename From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
template <typename T>
void atomicAdd(T* to, T x) {
  std::atomic_ref(*to) += x;
}
template <typename T>
T __ldg(const T* from) {
  return *from;
}
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
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

// A grid in clusters of `size` blocks.
template <typename Kernel>
void run(Index grid, int threads, int size, Kernel kernel) {
  for (int number = 0; number < grid.x * grid.y * grid.z; number += size) {
    Cluster own(size, threads);
    std::vector<std::thread> running;
    for (int i = 0; i < size * threads; ++i) {
      running.emplace_back([=, &own] {
        cluster = &own, block = own.blocks[i / threads].get();
        threadIdx.x = i % threads, blockDim.x = threads, gridDim = grid;
        blockIdx = {number % grid.x + i / threads, number / grid.x % grid.y, number / grid.x / grid.y};
        kernel();
      });
    }
    for (auto& each : running) each.join();
  }
}

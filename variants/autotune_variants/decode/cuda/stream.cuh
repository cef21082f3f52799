// How tiles of keys and values come from memory to the lanes of a warp: straight to registers, the next tile while one is
// in the products; or ahead into shared memory, several tiles under way. A lane (g, t) gets unit 4 i + t of keys g + 8 h,
// and unit 8 i + g of the keys that value_row names.
#pragma once
#include "base.cuh"

constexpr int kKeyRows = kKeys / 8, kValueRows = kKeys / 4;  // of a tile, a lane's
constexpr int kStep = WARPS * kKeys;                         // from one tile of a warp to its next

// The rows of a task from one on; moves on with the tiles of a warp.
struct Rows {
  const Data* row;
  const i64 stride, column;  // in elements
  __device__ __forceinline__ Rows(const Data* all, const Strides& s, const Task& task, int from)
      : row(all + task.batch * s.b + task.kv_head * s.h + (task.first + from) * s.n), stride(s.n), column(s.d) {}
  __device__ __forceinline__ const Data* operator[](int i) const { return row + i * stride; }
  __device__ __forceinline__ void next_tile() { row += kStep * stride; }
};

#if STAGES == 0

constexpr int kRingBytes = 0;

class Stream {
  const Lane lane;
  const int first = threadIdx.x / 32 * kKeys;
  int keys_left, values_left;  // from the tile that comes next
  Rows k, v;
  uint4 keys[kKeySteps][kKeyRows], values[kValueSteps][kValueRows];

 public:
  __device__ __forceinline__ Stream(const Args& a, const Task& task, unsigned char*)
      : keys_left(task.count - first), values_left(keys_left), k(a.k_data, a.k, task, first + lane.g), v(a.v_data, a.v, task, first + value_row(lane, 0)) {
    keys_done(), values_done();
  }
  __device__ __forceinline__ void arrive() {}
  __device__ __forceinline__ uint4 key(int i, int h) const { return keys[i][h]; }
  __device__ __forceinline__ uint4 value(int i, int r) const { return values[i][r]; }

  // All units of a tile were used: those of the next one may come.
  __device__ __forceinline__ void keys_done() {
#pragma unroll
    for (int h = 0; h < kKeyRows; ++h) {
      const Data* row = k[8 * h];
#pragma unroll
      for (int i = 0; i < kKeySteps; ++i) keys[i][h] = load_unit(row, k.column, 4 * i + lane.t, lane.g + 8 * h < keys_left).bits;
    }
    keys_left -= kStep, k.next_tile();
  }
  __device__ __forceinline__ void values_done() {
#pragma unroll
    for (int r = 0; r < kValueRows; ++r) {
      const Data* row = v[value_row(lane, r) - value_row(lane, 0)];
#pragma unroll
      for (int i = 0; i < kValueSteps; ++i) values[i][r] = load_unit(row, v.column, 8 * i + lane.g, value_row(lane, r) < values_left).bits;
    }
    values_left -= kStep, v.next_tile();
  }
};

#else

static_assert(ALIGNED, "copies are of 16 bytes");
constexpr int kTile = kKeys * kUnits;                            // units of a tile of keys, or of values
constexpr int kRingBytes = WARPS * STAGES * 2 * kTile * 16;
constexpr bool kEven = 32 % kUnits == 0 || kUnits % 32 == 0;     // copies of a lane are a fixed number of rows or units apart

// Where in a row a unit lies, so that the eight lanes that read at once meet in no bank: those of two keys, or two units
// of four values.
__device__ __forceinline__ int key_spot(int row, int unit) { return kUnits % 8 ? unit : unit ^ (row & 1) * 4; }
__device__ __forceinline__ int value_spot(int row, int unit) { return kUnits % 8 ? unit : unit ^ (row / (kKeys / 8) & 3) * 2; }

class Stream {
  const Lane lane;
  const int own = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int own_row = kEven ? own / kUnits : 0;
  int left;        // keys from the tile that is copied next
  Rows k, v;
  uint4* const ring;  // [STAGES][2][kKeys][kUnits]
  int reading = STAGES - 1, writing = 0;

  template <typename Spot>
  __device__ __forceinline__ void copy_rows(const Rows& from, uint4* to, Spot spot) const {
#pragma unroll
    for (int i = 0; i < kTile; i += 32) {
      const int row = kEven ? own_row + i / kUnits : (own + i) / kUnits;
      const int unit = kEven ? own % kUnits + i % kUnits : (own + i) % kUnits;
      if (kTile % 32 && own + i >= kTile) break;
      copy_unit(to + row * kUnits + spot(row, unit), from[row - own_row] + unit * kUnit, row < left);
    }
  }
  // The next tile, or an empty group after the last.
  __device__ __forceinline__ void copy() {
    uint4* keys = ring + writing * 2 * kTile;
    writing = writing + 1 == STAGES ? 0 : writing + 1;
    if (left > 0) {
      copy_rows(k, keys, key_spot);
      copy_rows(v, keys + kTile, value_spot);
    }
    commit_copies();
    left -= kStep, k.next_tile(), v.next_tile();
  }

 public:
  __device__ __forceinline__ Stream(const Args& a, const Task& task, unsigned char* shared)
      : left(task.count - warp * kKeys),
        k(a.k_data, a.k, task, warp * kKeys + own_row),
        v(a.v_data, a.v, task, warp * kKeys + own_row),
        ring(reinterpret_cast<uint4*>(shared) + warp * STAGES * 2 * kTile) {
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) copy();
  }
  // Waits for the next tile to use, and has a later one follow where the one before it lay.
  __device__ __forceinline__ void arrive() {
    wait_copies<STAGES - 2>();
    __syncwarp();
    reading = reading + 1 == STAGES ? 0 : reading + 1;
    copy();
  }
  __device__ __forceinline__ uint4 key(int i, int h) const {
    const int row = lane.g + 8 * h, unit = 4 * i + lane.t;
    return unit < kUnits ? ring[reading * 2 * kTile + row * kUnits + key_spot(row, unit)] : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ uint4 value(int i, int r) const {
    const int row = value_row(lane, r), unit = 8 * i + lane.g;
    return unit < kUnits ? ring[(reading * 2 + 1) * kTile + row * kUnits + value_spot(row, unit)] : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void keys_done() {}
  __device__ __forceinline__ void values_done() {}
};

#endif

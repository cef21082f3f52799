// The configuration of one compilation, and the sizes that follow from it. Every macro is set by the host.
#pragma once

#ifndef KERNELS
#define KERNELS 63        // which to compile: 1 forward, 2 forward_train, 4 backward_columns, 8 backward_rows,
#endif                    // 16 backward_both, 32 prepare and prepare_train
#ifndef REAL
#define REAL double       // element type: double (DMMA) or float (three TF32 products)
#endif
#ifndef STORAGE
#define STORAGE 0         // tensors hold 0: REAL, 1: bfloat16, 2: float16 (with REAL float and one TF32 product: exact inputs)
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef ROW_WARPS
#define ROW_WARPS 4       // warps along the owned dimension: 16 rows each
#endif
#ifndef SPLIT_WARPS
#define SPLIT_WARPS 2     // groups of ROW_WARPS warps, each streaming its own share of the other dimension
#endif
#ifndef STEP
#define STEP 64           // streamed rows per step, of all groups together
#endif
#ifndef STAGES
#define STAGES 2          // streamed tiles in shared memory: 1 loads and waits, 2 overlap
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef ALIGNED
#define ALIGNED 1         // rows contiguous and 16-byte aligned: asynchronous copies
#endif
#ifndef D_CHUNK
#define D_CHUNK 64        // columns of the result that one block accumulates
#endif
#ifndef ATOMIC_GQ
#define ATOMIC_GQ 0       // the column pass adds GQ by atomics; 0 leaves GQ to the row pass
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1       // blocks that must fit on one multiprocessor (caps the registers)
#endif
#ifndef STORED
#define STORED 0          // the forward stores Q K^T, or in float64 its weights: one product of the backward (two, by passes) less
#endif
#ifndef SPREAD_COPIES
#define SPREAD_COPIES 0   // the column pass issues its copies between products instead of before them
#endif
#ifndef SIMT
#define SIMT 0            // float32 by ordinary multiply-adds instead of the matrix units
#endif
#ifndef HOLD_QUERIES
#define HOLD_QUERIES 0    // the forward keeps its queries in registers instead of rereading shared memory
#endif
typedef REAL Real;
#if STORAGE
typedef unsigned short Data;
#else
typedef REAL Data;
#endif

constexpr int kBlock = 16 * ROW_WARPS;
constexpr int kWarps = ROW_WARPS * SPLIT_WARPS;
constexpr int kThreads = 32 * kWarps;
constexpr int kSize = sizeof(Real), kStored = sizeof(Data);
constexpr int kAlong = STORAGE ? 16 : 8;                              // columns of the head that one product takes
constexpr int kDepth = (HEAD_DIM + kAlong - 1) / kAlong;              // products along the head
constexpr int kChunk = D_CHUNK < HEAD_DIM ? D_CHUNK : (HEAD_DIM + 15) / 16 * 16;
constexpr int kChunks = (HEAD_DIM + kChunk - 1) / kChunk;
constexpr int kDim = kChunks * kChunk;                                // padded head size
constexpr int kPitch = (kDim * kStored + 127) / 128 * 128;            // bytes of a row in shared memory
constexpr int kGroupThreads = 32 * ROW_WARPS;
constexpr int kShare = STEP / SPLIT_WARPS;                            // streamed rows per step of one group
constexpr int kTiles = kShare / 8;                                    // 8-wide score tiles of a warp
constexpr int kGroups = kChunk / 16;                                  // 16-wide result tiles of a warp
constexpr int kMergeBytes = (SPLIT_WARPS - 1) * ROW_WARPS * 16 * kChunk * kSize;  // sums of the other groups of a block
__host__ __device__ constexpr int larger_of(int a, int b) { return a > b ? a : b; }
// TF32 accumulators truncate where float64 ones round: for float32 chains are kept short, and shifts are subtracted in
// float32 after the product instead of starting the accumulators.
constexpr bool kRounds = kSize == 8;
// Float64 stores weights: its exponential takes time that the products wait for. Float32 computes it again for nothing.
constexpr bool kStoreScores = STORED && kSize == 4, kStoreWeights = STORED && kSize == 8;
static_assert(!SIMT || (kSize == 4 && !STORAGE && !ATOMIC_GQ), "plain float32, GQ by the row pass");
static_assert(!(STORED && SPREAD_COPIES), "copies are spread over the product that STORED saves");
static_assert(!(STORED && kChunks > 1), "one block for all that is stored of a row");
static_assert(!STORAGE || (kSize == 4 && !ATOMIC_GQ), "16-bit tensors: float32 sums, GQ by the row pass");
static_assert(kChunks == 1 || kChunk * kStored % 128 == 0, "chunks begin where the swizzle repeats");
static_assert(STAGES == 1 || STAGES == 2, "one tile or two");
static_assert(STEP % (8 * SPLIT_WARPS) == 0, "a step gives every warp whole tiles");
static_assert(!ATOMIC_GQ || !(KERNELS & 4) || kShare % 16 == 0, "the product for GQ takes 16 queries at a time");
static_assert(kChunk % 16 == 0, "chunks of whole groups");

// The configuration of one compilation, and the sizes that follow from it. Every macro is set by the host.
#pragma once
#ifndef KERNELS
#define KERNELS 15       // which to compile: 1 tokens, 2 weights, 4 combine, 8 prepare
#endif
#ifndef DIM
#define DIM 64           // features of a token
#endif
#ifndef NORM
#define NORM 0           // the MLP of x normalised
#endif
#ifndef RESIDUAL
#define RESIDUAL 0       // plus x
#endif
#ifndef OUT
#define OUT 1            // the output is wanted
#endif
#ifndef GRADS
#define GRADS 1          // the gradients are wanted
#endif
#ifndef ATOMIC
#define ATOMIC 0         // weights: the shares of the tokens add to one sum
#endif
#ifndef ALIGNED
#define ALIGNED 1        // rows contiguous and 16-byte aligned
#endif
#ifndef ROW_WARPS
#define ROW_WARPS 4      // tokens: warps along the tokens, 16 each
#endif
#ifndef SPLIT_WARPS
#define SPLIT_WARPS 2    // tokens: groups of those, each with its own share of the hidden features
#endif
#ifndef CHUNK
#define CHUNK 32         // tokens: hidden features whose weights are in shared memory at a time
#endif
#ifndef FEATURE_WARPS
#define FEATURE_WARPS 8  // weights: warps of a block
#endif
#ifndef PARTNERS
#define PARTNERS 1       // weights: warps that share 16 hidden features, each with its own part of the D features
#endif
#ifndef STEP
#define STEP 16          // weights: tokens between two meetings of the partners
#endif
#ifndef TILE
#define TILE 32          // weights: tokens in shared memory at a time
#endif

#include "../../cuda/storage.cuh"

typedef long long i64;

struct Strides {
  i64 b, h, n, d;  // in elements; b and h are not used
};

struct Args {
  const Data *x, *weight, *w_gate, *w_up, *w_down, *grad_out;
  Data *out, *grad_x, *grad_weight, *grad_w_gate, *grad_w_up, *grad_w_down;
  Data* z;             // [rows, DIM]: x normalised
  Real* parts;         // [shares, 3, hidden, DIM]: what the shares add up to: gate and up (transposed), down; ATOMIC: one for all
  Real* weight_parts;  // [blocks of tokens, DIM]
  unsigned short* planes;  // tensors as sums of 16-bit numbers: see split_prepare.cuh
  float* scales;           // likewise
  double eps;
  i64 rows, hidden, shares;
  Strides x_strides, weight_strides, w_gate_strides, w_up_strides, w_down_strides, grad_out_strides;
  Strides out_strides, grad_x_strides, grad_weight_strides, grad_w_gate_strides, grad_w_up_strides, grad_w_down_strides;
};

constexpr int kLine = 128 / sizeof(Real);                 // elements after which the swizzle repeats
constexpr int kDim = (DIM + 15) / 16 * 16;                // padded with zeros
constexpr int kPitch = (kDim + kLine - 1) / kLine * kLine;  // of a row of features in shared memory
constexpr int kDepth = kDim / 8;
constexpr bool kExact = STORAGE == 1 || STORAGE == 2;     // what tensors hold, TF32 holds as well
constexpr int kTokens = 16 * ROW_WARPS;
constexpr int kTokenThreads = 32 * ROW_WARPS * SPLIT_WARPS;
constexpr int kFeatures = 16 * FEATURE_WARPS / PARTNERS;  // hidden features of a block of weights
constexpr int kWeightThreads = 32 * FEATURE_WARPS;
constexpr int kCombineThreads = 256;
static_assert(CHUNK % (16 * SPLIT_WARPS) == 0 && CHUNK % kLine == 0, "every warp takes 16 features at a time");
static_assert(kFeatures % kLine == 0 && kDepth % PARTNERS == 0 && FEATURE_WARPS % PARTNERS == 0, "whole lines and tiles");
static_assert(STEP % (8 * PARTNERS) == 0 && TILE % STEP == 0, "every partner takes whole tiles of 8 tokens");

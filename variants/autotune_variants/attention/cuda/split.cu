// Entry points of float32 attention on split float16 operands (sm_90a): measure, split, then forward and backward.
#include "split_backward.cuh"
#include "wgmma_entries.cuh"

// Which part of which head of which tensor a block of measure or split works on: kParts blocks a head.
struct Piece {
  int source, part;
  i64 batch, head, first, last;
  __device__ Piece(const Args& a, i64 item) : part(item % kParts) {
    item /= kParts;
    for (source = 0; source + 1 < kSources && item >= a.batch * heads_of(a, source); ++source) item -= a.batch * heads_of(a, source);
    batch = item / heads_of(a, source), head = item % heads_of(a, source);
    const i64 n = length_of(a, source), share = (n + kParts - 1) / kParts;
    first = min(part * share, n), last = min(first + share, n);
  }
};

// The largest magnitude and squared row norm of each piece; 2 B (H + Hkv) kParts blocks.
ENTRY measure(const Args a) {
  const Piece piece(a, blockIdx.x);
  const Strides& x = strides_of(a, piece.source);
  const float* head = head_of(data_of(a, piece.source), x, piece.batch, piece.head);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float top = 0, norm = 0;
  for (i64 n = piece.first + warp; n < piece.last; n += kThreads / 32) {
    float sum = 0;
    for (int d = lane; d < HEAD_DIM; d += 32) {
      const float value = fabsf(head[n * x.n + d * x.d]);
      top = fmaxf(top, value < __int_as_float(0x7f800000) ? value : 0), sum = fmaf(value, value, sum);
    }
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    norm = fmaxf(norm, sum);
  }
  for (int offset = 16; offset; offset /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, offset));
  __shared__ float tops[kThreads / 32], norms[kThreads / 32];
  if (lane == 0) tops[warp] = top, norms[warp] = norm;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < kThreads / 32; ++i) top = fmaxf(top, tops[i]), norm = fmaxf(norm, norms[i]);
  float* to = const_cast<float*>(measures_of(a, piece.source, piece.batch, piece.head)) + piece.part;
  to[0] = top, to[kParts] = norm;
}

// The two planes of every tensor; the same blocks.
ENTRY split(const Args a) {
  const Piece piece(a, blockIdx.x);
  const Strides& x = strides_of(a, piece.source);
  const float* head = head_of(data_of(a, piece.source), x, piece.batch, piece.head);
  Half* rows = const_cast<Half*>(rows_of(a, piece.source, piece.batch, piece.head));
  const i64 plane = plane_of(a, piece.source);
  const int shift = shift_of(a, piece.source, piece.batch, piece.head);
  // the scale's sign, or NaN as it is
  const float sign = piece.source != kQ || a.scale >= 0 ? 1.0f : a.scale < 0 ? -1.0f : __int_as_float(0x7fffffff);
  const auto value = [&](i64 n, int d) { return d < HEAD_DIM ? scaled(head[n * x.n + d * x.d], shift) * sign : 0; };
  for (i64 i = piece.first * kDim / 2 + threadIdx.x; i < piece.last * kDim / 2; i += kThreads) {
    const i64 n = i / (kDim / 2);
    const int d = i % (kDim / 2) * 2;
    const float first = value(n, d), second = value(n, d + 1);
    const unsigned high = pack(first, second);
    reinterpret_cast<unsigned*>(rows)[i] = high;
    reinterpret_cast<unsigned*>(rows + plane)[i] =
        pack(first - unpack(static_cast<unsigned short>(high)), second - unpack(static_cast<unsigned short>(high >> 16)));
  }
}

// delta[b, h, n] = sum over d of grad_out * out, scaled, one warp a row; shift and inverse from lse; zeros in gq.
extern "C" __global__ void prepare(const Args a) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.batch * a.heads * a.nq) return;
  const i64 n = row % a.nq, h = row / a.nq % a.heads, b = row / a.nq / a.heads;
  const float *out = head_of(a.out_data, a.out, b, h) + n * a.out.n, *grad = head_of(a.grad_out_data, a.grad_out, b, h) + n * a.grad_out.n;
  float* gq = head_of(a.gq_data, a.gq, b, h) + n * a.gq.n;
  const int grad_shift = shift_of(a, kG, b, h), out_shift = shift_of(a, kV, b, h / (a.heads / a.kv_heads));
  float sum = 0;
  for (int d = lane; d < HEAD_DIM; d += 32) {
    sum += scaled(out[d * a.out.d], out_shift) * scaled(grad[d * a.grad_out.d], grad_shift);
    gq[d * a.gq.d] = 0;
  }
  for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane > 0) return;
  const float lse = lse_of(a, b, h, n);
  const bool empty = lse == -__int_as_float(0x7f800000);
  const double top = lse * kLog2e, shift = empty ? 0 : ceil(top);
  a.delta[row] = sum, a.shift[row] = static_cast<float>(shift);
  a.inverse[row] = empty ? 0 : static_cast<float>(exp2(shift - top));
}

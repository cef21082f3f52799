// SiLU(u) v and its gradients.
#pragma once

// 1 / (1 + exp(-u)), without overflow.
template <typename R>
__device__ __forceinline__ R sigmoid(R u) {
  const R e = exp(-fabs(u));
  const R inverse = 1 / (1 + e);
  return u >= 0 ? inverse : e * inverse;
}

template <typename R>
struct Gated {
  R h, grad_u, grad_v;
};

// With s = sigmoid(u): h = u s v, grad_u = grad_h v s (1 + u (1 - s)), grad_v = grad_h u s.
template <typename R>
__device__ __forceinline__ Gated<R> gated(R u, R v, R grad_h) {
  const R s = sigmoid(u), silu = u * s;
  return {silu * v, grad_h * v * (s + silu * (1 - s)), grad_h * silu};
}

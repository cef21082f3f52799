"""The gated MLP, and the same behind a normalisation: forward, backward, both in one call."""

from __future__ import annotations

from typing import Any

from autotune import operation
from autotune_variants.mlp import published
from autotune_variants.mlp.reference import (
    Gradients,
    mlp,
    mlp_gradients,
    norm_mlp_forward,
    norm_mlp_gradients,
    plain_mlp,
    plain_mlp_gradients,
    plain_norm_mlp_forward,
    plain_norm_mlp_gradients,
)
from autotune_variants.products import Array


def scaled_sample(problem: Any, rng: Any) -> tuple[Array, ...]:
    """Standard-normal inputs, every matrix of weights over the root of its height.

    As a model starts out: activations stay of order 1 whatever the sizes.
    """
    inputs = problem.operation.inputs
    return tuple(
        rng.standard_normal(shape) * (max(shape[0], 1) ** -0.5 if t.name.startswith("w_") else 1.0)
        for t, shape in ((tensor, tensor.shape(problem.sizes)) for tensor in inputs)
    )


_SHAPE: dict[str, Any] = {
    "dims": "N D F",
    "axes": (("N",), ("D", "F")),
    "dtypes": ("float32", "float64", "bfloat16", "float16"),
    "sample": scaled_sample,
}
_NORM: dict[str, Any] = {**_SHAPE, "flags": {"residual": False}, "scalars": {"eps": 1e-6}}
_WEIGHTS = "w_gate[D,F] w_up[D,F] w_down[F,D]"
_GRAD_WEIGHTS = "grad_w_gate[D,F] grad_w_up[D,F] grad_w_down[F,D]"
_TOLERANCE = dict.fromkeys(
    ("grad_x", "grad_weight", "grad_w_gate", "grad_w_up", "grad_w_down"), 3.0
)


@operation(
    **_SHAPE,
    inputs=f"x[N,D] {_WEIGHTS}",
    outputs="out[N,D]",
    flops="6*N*D*F",
    tolerance={"out": 2.0},
    plain=plain_mlp,
)
def gated_mlp(x: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
    """(SiLU(x w_gate) * (x w_up)) w_down for each of N tokens of D features; SiLU(u) = u s(u).

    SwiGLU without biases, F hidden features. Formulas: arXiv 2002.05202, HAL 05734881.
    """
    return mlp(x, w_gate, w_up, w_down)


@operation(
    **_SHAPE,
    inputs=f"x[N,D] {_WEIGHTS} grad_out[N,D]",
    outputs=f"grad_x[N,D] {_GRAD_WEIGHTS}",
    flops="16*N*D*F",
    tolerance=_TOLERANCE,
    plain=plain_mlp_gradients,
)
def gated_mlp_backward(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, grad_out: Array
) -> tuple[Array, Array, Array, Array]:
    """Gradients of x and the three weights, given that of what `gated_mlp` returned.

    With U = x w_gate, V = x w_up, s the sigmoid, H = U s(U) V and GH = grad_out w_down^T:
    GV = GH U s(U), GU = GH V s(U) (1 + U (1 - s(U))), grad_x = GU w_gate^T + GV w_up^T,
    and x^T GU, x^T GV, H^T grad_out for the weights. U and V are computed anew, and counted in
    the flops. Formulas: HAL 05734881.
    """
    return mlp_gradients(x, w_gate, w_up, w_down, grad_out)


def _plain_train(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, grad_out: Array
) -> tuple[Array, ...]:
    found = plain_mlp_gradients(x, w_gate, w_up, w_down, grad_out)
    return plain_mlp(x, w_gate, w_up, w_down), *found


@operation(
    **_SHAPE,
    inputs=f"x[N,D] {_WEIGHTS} grad_out[N,D]",
    outputs=f"out[N,D] grad_x[N,D] {_GRAD_WEIGHTS}",
    flops="18*N*D*F",
    tolerance={"out": 2.0, **_TOLERANCE},
    plain=_plain_train,
    published=published.TRAIN,
)
def gated_mlp_train(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, grad_out: Array
) -> tuple[Array, ...]:
    """Forward and backward in one call, as a training step needs them: out and the gradients."""
    found = mlp_gradients(x, w_gate, w_up, w_down, grad_out)
    return mlp(x, w_gate, w_up, w_down), *found


@operation(
    **_NORM,
    inputs=f"x[N,D] weight[D] {_WEIGHTS}",
    outputs="out[N,D]",
    flops="6*N*D*F",
    tolerance={"out": 2.0},
    plain=plain_norm_mlp_forward,
)
def norm_mlp(
    x: Array,
    weight: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    *,
    residual: bool,
    eps: float,
) -> Array:
    """`gated_mlp` of `rmsnorm(x, weight)`, plus x where `residual`; eps is 1e-6.

    The study's norm+MLP has no residual; its transformer block has one there. Formulas:
    HAL 05734881.
    """
    return norm_mlp_forward(x, weight, w_gate, w_up, w_down, residual=residual, eps=eps)


def _plain_norm_train(*arrays: Array, residual: bool, eps: float) -> tuple[Array, ...]:
    found = plain_norm_mlp_gradients(*arrays, residual=residual, eps=eps)
    return plain_norm_mlp_forward(*arrays[:-1], residual=residual, eps=eps), *found


@operation(
    **_NORM,
    inputs=f"x[N,D] weight[D] {_WEIGHTS} grad_out[N,D]",
    outputs=f"out[N,D] grad_x[N,D] grad_weight[D] {_GRAD_WEIGHTS}",
    flops="18*N*D*F",
    tolerance={"out": 2.0, **_TOLERANCE},
    plain=_plain_norm_train,
    published=published.NORM_TRAIN,
)
def norm_mlp_train(
    x: Array,
    weight: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    grad_out: Array,
    *,
    residual: bool,
    eps: float,
) -> tuple[Array, ...]:
    """Forward and backward of `norm_mlp` in one call: out and the gradients of all inputs."""
    options: dict[str, Any] = {"residual": residual, "eps": eps}
    found: Gradients = norm_mlp_gradients(x, weight, w_gate, w_up, w_down, grad_out, **options)
    return norm_mlp_forward(x, weight, w_gate, w_up, w_down, **options), *found

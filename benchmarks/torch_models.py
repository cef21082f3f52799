"""The studied operations in PyTorch, forward plus backward, as a user of PyTorch writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

EPS = 1e-6
Tensor = torch.Tensor


def mlp(z: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    """SwiGLU without biases; weights (D,F), (D,F) and (F,D)."""
    return (functional.silu(z @ w_gate) * (z @ w_up)) @ w_down


def norm_mlp(x: Tensor, weight: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    """The gated MLP of the normalised x (N,D)."""
    return mlp(functional.rms_norm(x, (x.shape[-1],), weight, EPS), w_gate, w_up, w_down)


def block(
    x: Tensor,
    weight1: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    weight2: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
) -> Tensor:
    """The study's block: x (B,N,D), projections (D,H,Dh), no output projection, no mask."""
    batch, tokens, width = x.shape
    z = functional.rms_norm(x, (width,), weight1, EPS)
    q, k, v = (
        (z @ w.reshape(width, -1)).reshape(batch, tokens, *w.shape[1:]).transpose(1, 2)
        for w in (w_q, w_k, w_v)
    )
    heads = functional.scaled_dot_product_attention(q, k, v)
    r = x + heads.transpose(1, 2).reshape(batch, tokens, width)
    return r + norm_mlp(r, weight2, w_gate, w_up, w_down)


def training(
    model: Callable[..., Tensor], arrays: Sequence[Any], *, compiled: bool
) -> dict[str, Callable[[], list[Tensor]]]:
    """Calls by name, eager and where wanted compiled: the output and the gradients of all inputs.

    `arrays` are NumPy's: the inputs of the model, then the gradient of its output.
    """
    *inputs, grad = (torch.from_numpy(array) for array in arrays)
    for tensor in inputs:
        tensor.requires_grad_()

    def run(call: Callable[..., Tensor]) -> list[Tensor]:
        out = call(*inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, grad)]

    calls = {"torch": lambda: run(model)}
    if compiled:
        faster = torch.compile(model, dynamic=False)
        calls["torch.compile"] = lambda: run(faster)
    return calls


def check(ours: Sequence[Any], theirs: Sequence[Tensor], dtype: str) -> None:
    """Both compute the same, up to rounding; AssertionError otherwise."""
    bound = {"float32": 1e-3, "float64": 1e-9}[dtype]
    for mine, other in zip(ours, theirs, strict=True):
        scale = float(other.abs().max())
        assert abs(mine - other.numpy()).max() <= bound * scale, "the two do not agree"


def times(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Milliseconds of each, and the ratio of ours to each of theirs and to the fastest of them.

    All with 95% intervals as [median, low, high]; ratios are taken round by round.
    """
    from common import median_interval, ratio_interval

    others = [name for name in samples if name != "ours"]
    fastest = min(others, key=lambda name: median_interval(samples[name])[0])
    over = {name: list(ratio_interval(samples["ours"], samples[name])) for name in others}
    return {
        "ms": {name: [1e3 * t for t in median_interval(each)] for name, each in samples.items()},
        "over": over,
        "fastest": fastest,
        "ratio": over[fastest],
        "rounds": len(samples["ours"]),
    }

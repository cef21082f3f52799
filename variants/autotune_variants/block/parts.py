"""The block composed of its parts: each part's kernel comes from `dispatch`, for its own problem.

What serves a part is what its policy says: tuning `attention`, `norm_mlp_train` and the others at
the sizes of the block tunes the block. The parts are bound when the variant is built, so a kernel
of a block keeps the policies it was built with, and a measurement of a block is one of the policies
of its time: tune the parts before the block. Their temporaries come out of the block's own
`room`, and only what fits into it is asked for and, unless the block is declared to add
atomically, only what repeats bitwise, so that its workspace and determinism hold whatever the
policies say. What is left is done here: projections (products.py), residuals by NumPy. Between the
parts, arrays lie as (B,N,heads,Dh).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autotune import dispatch
from autotune_variants.block.products import Products, products

Array = np.ndarray[Any, Any]
Run = Callable[..., None]

PADDING = 1 << 14
"""Bytes of the room that are kept for the distances between temporaries."""


class Parts:
    """The kernels of a block's parts, and the room in which they run.

    Raises ConstraintError when no variant of a part fits into the room.
    """

    def __init__(
        self, problem: Any, room_bytes: int, device: str = "cpu", *, atomic: bool = False
    ) -> None:
        sizes = problem.sizes
        self._options: dict[str, Any] = {
            "dtype": problem.dtype,
            "device": device,
            "deterministic": not atomic,
            "max_workspace": max(room_bytes - PADDING, 0),
        }
        self._tokens = {"N": sizes["B"] * sizes["N"], "D": sizes["D"]}
        self._hidden = {**self._tokens, "F": sizes["F"]}
        self._heads = {name: sizes[name] for name in ("B", "H", "Hkv", "N")}
        self._heads["D"] = sizes["Dh"]
        self._causal = bool(problem.flags["causal"])

    def norm(self, operation: str) -> Any:
        """`rmsnorm` or its backward on all tokens."""
        return dispatch(operation, dims=self._tokens, **self._options)

    def mlp(self, operation: str) -> Any:
        """One of the operations of the gated MLP, without the residual."""
        return dispatch(operation, dims=self._hidden, **self._options)

    def norm_mlp(self, operation: str) -> Any:
        """`norm_mlp` or `norm_mlp_train` with the residual."""
        return dispatch(operation, dims=self._hidden, residual=True, **self._options)

    def attention(self, operation: str) -> Any:
        """`attention` or its backward."""
        return dispatch(operation, dims=self._heads, causal=self._causal, **self._options)


def run_block(
    problem: Any, config: Mapping[str, Any], temporaries: Mapping[str, tuple[int, ...]]
) -> Run:
    """`run(*inputs, *outputs, *temporaries, eps)`; `temporaries` are their shapes by name.

    With z2 among them the second normalisation is a part of its own, else it is fused with the
    MLP. Inputs that are not contiguous are copied, outputs made apart and copied.
    """
    operation = problem.operation
    inputs = tuple(tensor.name for tensor in operation.inputs)
    outputs = tuple(tensor.name for tensor in operation.outputs)
    parts = Parts(problem, temporaries["room"][0] * problem.itemsize)
    fused = "z2" not in temporaries
    multiply = products(problem, config)
    forward = _forward(parts, multiply)
    finish = (_fused if fused else _separate)(parts, train="grad_out" in inputs)
    backward = _backward(parts, multiply) if "grad_out" in inputs else None
    names = (*inputs, *outputs, *temporaries)

    def run(*arguments: Any) -> None:
        given = dict(zip(names, arguments, strict=False))
        arrays = {name: np.ascontiguousarray(given[name]) for name in inputs}
        arrays |= {name: _contiguous(given[name]) for name in outputs}
        arrays |= {name: given[name] for name in temporaries}
        arrays["room"] = arrays["room"].view(np.uint8)
        eps = arguments[-1]
        forward(arrays, eps)
        finish(arrays, eps)
        if backward is not None:
            backward(arrays, eps)
        for name in outputs:
            if arrays[name] is not given[name]:
                given[name][...] = arrays[name]

    return run


def _contiguous(output: Array) -> Array:
    return output if output.flags.c_contiguous else np.empty(output.shape, output.dtype)


def _rows(array: Array) -> Array:
    """(B,N,...) as (B*N, ...), whose further dims are one; w_o (H,Dh,D) as (H*Dh, D)."""
    batch, tokens, *rest = array.shape
    return array.reshape(batch * tokens, math.prod(rest))


def _matrix(weight: Array) -> Array:
    """A projection (D,heads,Dh) as a matrix."""
    return weight.reshape(weight.shape[0], weight.shape[1] * weight.shape[2])


def _by_head(array: Array) -> Array:
    """(B,N,heads,Dh) as (B,heads,N,Dh), without a copy."""
    return array.transpose(0, 2, 1, 3)


def _forward(parts: Parts, multiply: Products) -> Callable[[dict[str, Array], float], None]:
    """z1, q, k, v, heads, lse and r = x + what attention gives."""
    norm, attention = parts.norm("rmsnorm"), parts.attention("attention")

    def run(arrays: dict[str, Array], eps: float) -> None:
        x, z1, r = _rows(arrays["x"]), _rows(arrays["z1"]), _rows(arrays["r"])
        norm(x, arrays["weight1"], out=z1, workspace=arrays["room"], eps=eps)
        for name in "qkv":
            multiply.times(z1, _matrix(arrays[f"w_{name}"]), _rows(arrays[name]))
        by_head = [_by_head(arrays[name]) for name in "qkv"]
        out = (_by_head(arrays["heads"]), arrays["lse"])
        attention(*by_head, out=out, workspace=arrays["room"])
        heads = _rows(arrays["heads"])
        if "w_o" in arrays:
            multiply.times(heads, _rows(arrays["w_o"]), r)
            heads = r
        np.add(heads, x, out=r)

    return run


def _fused(parts: Parts, *, train: bool) -> Callable[[dict[str, Array], float], None]:
    """From r to out, and grad_r where training: normalisation and MLP in one part."""
    kernel = parts.norm_mlp("norm_mlp_train" if train else "norm_mlp")

    def run(arrays: dict[str, Array], eps: float) -> None:
        weights = [arrays[name] for name in ("weight2", "w_gate", "w_up", "w_down")]
        r, out, room = _rows(arrays["r"]), _rows(arrays["out"]), arrays["room"]
        if not train:
            kernel(r, *weights, out=out, workspace=room, eps=eps)
            return
        grads = ("grad_weight2", "grad_w_gate", "grad_w_up", "grad_w_down")
        results = (out, _rows(arrays["grad_r"]), *(arrays[name] for name in grads))
        grad_out = _rows(arrays["grad_out"])
        kernel(r, *weights, grad_out, out=results, workspace=room, eps=eps)

    return run


def _separate(parts: Parts, *, train: bool) -> Callable[[dict[str, Array], float], None]:
    """The same with the normalisation a part of its own."""
    norm, mlp = parts.norm("rmsnorm"), parts.mlp("gated_mlp_train" if train else "gated_mlp")
    norm_backward = parts.norm("rmsnorm_backward") if train else None

    def run(arrays: dict[str, Array], eps: float) -> None:
        weights = [arrays[name] for name in ("w_gate", "w_up", "w_down")]
        r, z2, out = (_rows(arrays[name]) for name in ("r", "z2", "out"))
        room, weight = arrays["room"], arrays["weight2"]
        norm(r, weight, out=z2, workspace=room, eps=eps)
        if norm_backward is None:
            mlp(z2, *weights, out=out, workspace=room)
        else:
            names = ("grad_w_gate", "grad_w_up", "grad_w_down")
            grads = [arrays[name] for name in names]
            grad_out, grad_z, grad_r = (
                _rows(arrays[name]) for name in ("grad_out", "grad_z2", "grad_r")
            )
            mlp(z2, *weights, grad_out, out=(out, grad_z, *grads), workspace=room)
            results = (grad_r, arrays["grad_weight2"])
            norm_backward(r, weight, grad_z, out=results, workspace=room, eps=eps)
            np.add(grad_r, grad_out, out=grad_r)
        np.add(out, r, out=out)

    return run


def _backward(parts: Parts, multiply: Products) -> Callable[[dict[str, Array], float], None]:
    """From grad_r to grad_x and the gradients of the first normalisation and the projections."""
    attention = parts.attention("attention_backward")
    norm_backward = parts.norm("rmsnorm_backward")

    def run(arrays: dict[str, Array], eps: float) -> None:
        _attention_gradients(arrays, attention, multiply)
        z1, grad_z, lines = (_rows(arrays[name]) for name in ("z1", "grad_z1", "lines"))
        for name, target in (("q", grad_z), ("k", lines), ("v", lines)):
            grad = _rows(arrays[f"grad_{name}"])
            multiply.transposed_times(z1, grad, _matrix(arrays[f"grad_w_{name}"]))
            weight = _matrix(arrays[f"w_{name}"])
            multiply.times_transposed(grad, weight, target, arrays["turned"])
            if target is lines:
                np.add(grad_z, lines, out=grad_z)
        x, grad_x = _rows(arrays["x"]), _rows(arrays["grad_x"])
        results = (grad_x, arrays["grad_weight1"])
        norm_backward(x, arrays["weight1"], grad_z, out=results, workspace=arrays["room"], eps=eps)
        np.add(grad_x, _rows(arrays["grad_r"]), out=grad_x)

    return run


def _attention_gradients(arrays: dict[str, Array], attention: Any, multiply: Products) -> None:
    """grad_q, grad_k, grad_v, and grad_w_o where there is an output projection."""
    grad_heads = arrays["grad_r"].reshape(arrays["heads"].shape) if "w_o" not in arrays else None
    if grad_heads is None:
        grad_heads, grad_r = arrays["grad_heads"], _rows(arrays["grad_r"])
        w_o, grad_w_o = _rows(arrays["w_o"]), _rows(arrays["grad_w_o"])
        multiply.transposed_times(_rows(arrays["heads"]), grad_r, grad_w_o)
        multiply.times_transposed(grad_r, w_o, _rows(grad_heads), arrays["turned"])
    by_head = [_by_head(arrays[name]) for name in ("q", "k", "v", "heads")]
    grads = tuple(_by_head(arrays[f"grad_{name}"]) for name in "qkv")
    attention(*(*by_head, arrays["lse"], _by_head(grad_heads)), out=grads, workspace=arrays["room"])

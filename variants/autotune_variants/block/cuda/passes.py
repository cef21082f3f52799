"""The passes and temporaries of the block on CUDA, each declared once.

A part's pass has what it reads and writes at least, and one launch: its own variant's passes have
the rest.
"""

from __future__ import annotations

from typing import Any

from autotune import Intermediate, Pass
from autotune_variants.norm.cuda.launches import BLOCKS

_LIKE_X, _LIKE_Q = ("B", "N", "D"), ("B", "N", "H", "Dh")
_LIKE_QKV = ("B", "N", "H + 2*Hkv", "Dh")
_WEIGHT_QKV = ("D", "(H + 2*Hkv)*Dh")
# Bytes that parts may use: what they store at least, and what cuBLAS asks for.
_ROOM = "room * itemsize * (B*N*(3*D + 4*F) + 3*D*F + 2*B*N*H*Dh + 65536) + 41943040"
_QKV = "2*B*N*D*(H + 2*Hkv)*Dh"
_SCORES, _PROJECTION, _MLP = "4*B*H*N*N*Dh", "2*B*N*D*H*Dh", "6*B*N*D*F"
_WEIGHTS = ("w_gate", "w_up", "w_down")
_GRADS = tuple(f"grad_{name}" for name in _WEIGHTS)


def temporaries(projected: bool, train: bool, fused: bool) -> tuple[Intermediate, ...]:
    """The arrays between the parts; the room is the last."""
    found: dict[str, tuple[str, ...]] = {
        **{"z1": _LIKE_X, "w_qkv": _WEIGHT_QKV, "qkv": _LIKE_QKV},
        **{"heads": _LIKE_Q, "r": _LIKE_X},
    }
    if not fused:
        found["z2"] = _LIKE_X
    if train:
        found |= {"grad_r": _LIKE_X, "grad_qkv": _LIKE_QKV, "grad_w_qkv": _WEIGHT_QKV}
        found |= {"grad_z1": _LIKE_X}
    if train and projected:
        found["grad_heads"] = _LIKE_Q
    if train and not fused:
        found["grad_z2"] = _LIKE_X
    arrays = [Intermediate(name, dims) for name, dims in found.items()]
    arrays.append(Intermediate("lse", ("B", "H", "N"), "accumulator"))
    if train:
        arrays.append(Intermediate("weight_parts", (BLOCKS, "D"), "accumulator"))
    return (*arrays, Intermediate("room", (_ROOM,), "uint8"))


def passes(projected: bool, train: bool, fused: bool, atomic: bool) -> tuple[Pass, ...]:
    """Every step; where it may be `atomic`, gradients of q, k and v are sums by atomics."""
    return (
        *_attention(projected, fused),
        *(_norm_mlp(train) if fused else _separate(projected, train)),
        *(_backward(projected, "atomic" if atomic else "owned") if train else ()),
    )


def _owned(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, "owned")


def _attention(projected: bool, fused: bool) -> tuple[Pass, ...]:
    heads = "r" if projected else "heads"
    project = Pass("project", reads=("heads", "w_o"), writes=_owned("r"), flops=_PROJECTION)
    # Without fusion the sum is written by the launch that normalises it.
    residual = Pass("residual", reads=(heads, "x"), writes=_owned("r"))
    return (
        Pass("norm1", reads=("x", "weight1"), writes=_owned("z1"), flops="4*B*N*D"),
        Pass("join", reads=("w_q", "w_k", "w_v"), writes=_owned("w_qkv")),
        Pass("projections", reads=("z1", "w_qkv"), writes=_owned("qkv"), flops=_QKV),
        Pass("attention", reads=("qkv",), writes=_owned("heads", "lse"), flops=_SCORES),
        *((project,) if projected else ()),
        *((residual,) if fused else ()),
    )


def _norm_mlp(train: bool) -> tuple[Pass, ...]:
    above, grads = (("grad_out",), _GRADS) if train else ((), ())
    own = ("grad_r", "grad_weight2") if train else ()
    return (
        Pass(
            "norm_mlp",
            reads=("r", "weight2", *_WEIGHTS, *above),
            writes=_owned("out", *own, *grads),
            flops=f"3*{_MLP}" if train else _MLP,
        ),
    )


def _separate(projected: bool, train: bool) -> tuple[Pass, ...]:
    above, grads = (("grad_out",), ("grad_z2", *_GRADS)) if train else ((), ())
    attended = "r" if projected else "heads"
    sums = ("r", "z2")
    norm = Pass("norm2", reads=(attended, "x", "weight2"), writes=_owned(*sums), flops="4*B*N*D")
    mlp = Pass(
        "mlp",
        reads=("z2", *_WEIGHTS, *above),
        writes=_owned("out", *grads),
        flops=f"3*{_MLP}" if train else _MLP,
    )
    residual = Pass("residual2", reads=("out", "r"), writes=_owned("out"))
    if not train:
        return (norm, mlp, residual)
    return (norm, mlp, residual, *_norm_gradients("2", "r", "grad_r", "grad_out"))


def _norm_gradients(which: str, x: str, grad_x: str, above: str) -> tuple[Pass, ...]:
    return (
        Pass(
            f"norm{which}_gradients",
            reads={x: 1, f"weight{which}": BLOCKS, f"grad_z{which}": 1, above: 1},
            writes={grad_x: "owned", "weight_parts": "reduction"},
            flops="11*B*N*D",
        ),
        Pass(f"sum_weight{which}", reads=("weight_parts",), writes=_owned(f"grad_weight{which}")),
    )


def _backward(projected: bool, how: Any) -> tuple[Pass, ...]:
    above = "grad_heads" if projected else "grad_r"
    project = (
        Pass(
            "grad_project", reads=("heads", "grad_r"), writes=_owned("grad_w_o"), flops=_PROJECTION
        ),
        Pass("grad_heads", reads=("grad_r", "w_o"), writes=_owned(above), flops=_PROJECTION),
    )
    return (
        *(project if projected else ()),
        Pass(
            "attention_gradients",
            reads=("qkv", "heads", "lse", above),
            writes={"grad_qkv": how},
            flops=f"5*{_SCORES}/2",
        ),
        Pass(
            "grad_projections",
            reads=("z1", "grad_qkv"),
            writes=_owned("grad_w_qkv"),
            flops=_QKV,
        ),
        Pass("part", reads=("grad_w_qkv",), writes=_owned("grad_w_q", "grad_w_k", "grad_w_v")),
        Pass("grad_z1", reads=("grad_qkv", "w_qkv"), writes=_owned("grad_z1"), flops=_QKV),
        *_norm_gradients("1", "x", "grad_x", "grad_r"),
    )

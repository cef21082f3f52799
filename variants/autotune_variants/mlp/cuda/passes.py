"""The passes of the variants on whole matrices by cuBLAS, each declared once.

`x` and `grad_x` are those of the MLP itself: z and grad_z where x is normalised first.
"""

from __future__ import annotations

from autotune import Intermediate, Pass
from autotune_variants.norm.cuda.launches import BLOCKS

_NDF = "2*N*D*F"
_ROWS, _LIKE_X = ("N", "F"), ("N", "D")

ROOM = Intermediate("room", ("room_mib * 1048576",), "uint8")
HIDDEN = (Intermediate("u", _ROWS), Intermediate("v", _ROWS))
GRAD_H = Intermediate("grad_h", _ROWS)
NORMAL, GRAD_NORMAL = Intermediate("z", _LIKE_X), Intermediate("grad_z", _LIKE_X)
WEIGHT_PARTS = Intermediate("weight_parts", (BLOCKS, "D"), "accumulator")


def temporaries(norm: bool, gradients: bool) -> tuple[Intermediate, ...]:
    """The arrays of a variant; cuBLAS's room is the last."""
    return (
        *HIDDEN,
        *((GRAD_H,) if gradients else ()),
        *((NORMAL,) if norm else ()),
        *((GRAD_NORMAL, WEIGHT_PARTS) if norm and gradients else ()),
        ROOM,
    )


def passes(norm: bool, gradients: bool, with_out: bool) -> tuple[Pass, ...]:
    """Every launch; what only a residual needs is counted only with one."""
    x, grad_x = ("z", "grad_z") if norm else ("x", "grad_x")
    middle = _gradients(x, grad_x, norm, with_out) if gradients else _forward(x, norm)
    return (
        *((_normalise(),) if norm else ()),
        *middle,
        *(_norm_gradients() if norm and gradients else ()),
    )


def _hidden(x: str) -> tuple[Pass, ...]:
    return (
        Pass("gate", reads=(x, "w_gate"), writes={"u": "owned"}, flops=_NDF),
        Pass("up", reads=(x, "w_up"), writes={"v": "owned"}, flops=_NDF),
    )


def _down(h: str, norm: bool) -> Pass:
    """With a residual, x lies in out already and the product is added to it."""
    before = {"out": "residual"} if norm else {}
    reads = {h: 1, "w_down": 1, **before}
    return Pass("down", reads=reads, writes={"out": "owned"}, flops=_NDF)


def _forward(x: str, norm: bool) -> tuple[Pass, ...]:
    activation = Pass("activation", reads=("u", "v"), writes={"u": "owned"})
    return (*_hidden(x), activation, _down("u", norm))


def _gradients(x: str, grad_x: str, norm: bool, with_out: bool) -> tuple[Pass, ...]:
    hidden = ("u", "v", "grad_h")
    return (
        *_hidden(x),
        Pass("grad_h", reads=("grad_out", "w_down"), writes={"grad_h": "owned"}, flops=_NDF),
        Pass("activation", reads=hidden, writes=dict.fromkeys(hidden, "owned")),
        *((_down("grad_h", norm),) if with_out else ()),
        Pass(
            "grad_down", reads=("grad_h", "grad_out"), writes={"grad_w_down": "owned"}, flops=_NDF
        ),
        Pass("grad_gate", reads=(x, "u"), writes={"grad_w_gate": "owned"}, flops=_NDF),
        Pass("grad_up", reads=(x, "v"), writes={"grad_w_up": "owned"}, flops=_NDF),
        Pass("grad_x_gate", reads=("u", "w_gate"), writes={grad_x: "owned"}, flops=_NDF),
        Pass("grad_x_up", reads=("v", "w_up", grad_x), writes={grad_x: "owned"}, flops=_NDF),
    )


def _normalise() -> Pass:
    """With a residual, x is copied to out on the way, which is counted as `down` reads it."""
    return Pass(
        "norm",
        parallel=("N",),
        reads={"x": 1, "weight": BLOCKS},
        writes={"z": "owned"},
        flops="4*N*D",
    )


def _norm_gradients() -> tuple[Pass, ...]:
    return (
        Pass(
            "norm_gradients",
            parallel={"N": f"ceil_div(N, {BLOCKS})"},
            reads={"x": 1, "grad_z": 1, "weight": BLOCKS, "grad_out": "residual"},
            writes={"grad_x": "owned", "weight_parts": "reduction"},
            flops="11*N*D",
        ),
        Pass("sum_weight", reads=("weight_parts",), writes={"grad_weight": "owned"}),
    )

"""The passes of the normalisation, declared once for its own variants and for those of the MLP."""

from __future__ import annotations

from autotune import Intermediate, Pass

INVERSE, LINES = Intermediate("inverse", ("N", 1)), Intermediate("lines", ("N", "D"))
SLOPE = Intermediate("slope", ("N",))
WEIGHT_PARTS = Intermediate("weight_parts", ("2*threads", "D"))

SUM_WEIGHT = Pass(
    "sum_weight", parallel=("D",), reads=("weight_parts",), writes={"grad_weight": "owned"}
)


def tiles(count: int, rows: str | int) -> Intermediate:
    """Tiles of every worker, its copy of the weight and one number a token; on cache lines."""
    size = f"{count}*{rows}*D + D + {rows}"
    return Intermediate("tiles", ("threads", f"ceil_div({size}, 64)*64"))


def tiled_forward(out: str, rows: str | int) -> tuple[Pass, ...]:
    """From x to `out`, tiles of `rows` tokens in parallel."""
    return (
        Pass(
            "norm",
            parallel={"N": rows},
            reads={"x": 1, "weight": "threads"},
            writes={out: "owned"},
            flops="4*N*D",
        ),
    )


def tiled_backward(grad: str, rows: str | int) -> tuple[Pass, ...]:
    """From `grad`, the gradient of what was normalised, to grad_x and grad_weight."""
    return (
        Pass(
            "norm_gradients",
            parallel={"N": rows},
            reads={"x": 1, grad: 1, "weight": "threads"},
            writes={"grad_x": "owned", "weight_parts": "reduction"},
            flops="11*N*D",
        ),
        SUM_WEIGHT,
    )


NUMPY_INVERSE = (
    Pass("squares", reads=("x",), writes={"lines": "owned"}, flops="N*D"),
    Pass("inverse", reads=("lines",), writes={"inverse": "owned"}, flops="N*D"),
)


def numpy_forward(out: str) -> tuple[Pass, ...]:
    """From x to `out`, whole arrays."""
    return (
        *NUMPY_INVERSE,
        Pass("unit", reads=("x", "inverse"), writes={out: "owned"}, flops="N*D"),
        Pass("scale", reads=(out, "weight"), writes={out: "owned"}, flops="N*D"),
    )


def numpy_backward(grad: str) -> tuple[Pass, ...]:
    """From `grad` to grad_x and grad_weight, once inverse is known."""
    return (
        Pass("unit_again", reads=("x", "inverse"), writes={"lines": "owned"}, flops="N*D"),
        Pass("norm_weight", reads=("lines", grad), writes={"grad_weight": "owned"}, flops="2*N*D"),
        Pass("scaled", reads=(grad, "weight"), writes={"grad_x": "owned"}, flops="N*D"),
        Pass("slope", reads=("lines", "grad_x"), writes={"slope": "owned"}, flops="2*N*D"),
        Pass("project", reads=("lines", "slope"), writes={"lines": "owned"}, flops="N*D"),
        Pass("subtract", reads=("grad_x", "lines"), writes={"grad_x": "owned"}, flops="N*D"),
        Pass("rescale", reads=("grad_x", "inverse"), writes={"grad_x": "owned"}, flops="N*D"),
    )

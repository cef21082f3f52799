"""The passes and temporaries of the variants on whole matrices, each declared once."""

from __future__ import annotations

from autotune import Intermediate, Pass

_NDF = "2*N*D*F"

ROWS, LINES = ("N", "F"), ("N", "D")
HIDDEN = (Intermediate("u", ROWS), Intermediate("v", ROWS))
GRAD_H = Intermediate("grad_h", ROWS)
SUM = Intermediate("lines", LINES)
JOINED = (Intermediate("joined", ("D", "2*F")), Intermediate("uv", ("N", "2*F")))
GRAD_JOINED = Intermediate("grad_joined", ("D", "2*F"))
NORMAL = Intermediate("z", LINES)

_JOIN = Pass("join", reads=("w_gate", "w_up"), writes={"joined": "owned"})


def forward_passes(x: str, joined: bool) -> tuple[Pass, ...]:
    """The forward from `x`, which is x itself or z, the normalised one."""
    u, v = ("uv", "uv") if joined else ("u", "v")
    if joined:
        first: tuple[Pass, ...] = (
            _JOIN,
            Pass("gate_up", reads=(x, "joined"), writes={"uv": "owned"}, flops=f"2*{_NDF}"),
        )
    else:
        first = (
            Pass("gate", reads=(x, "w_gate"), writes={"u": "owned"}, flops=_NDF),
            Pass("up", reads=(x, "w_up"), writes={"v": "owned"}, flops=_NDF),
        )
    return (
        *first,
        Pass("activation", reads=dict.fromkeys((u, v), 1), writes={u: "owned"}),
        Pass("down", reads=(u, "w_down"), writes={"out": "owned"}, flops=_NDF),
    )


def gradient_passes(x: str, grad_x: str, joined: bool, with_out: bool) -> tuple[Pass, ...]:
    """The gradients from `x` to `grad_x`, or from z to grad_z; with the output or without."""
    hidden = ("uv",) if joined else ("u", "v")
    first = forward_passes(x, joined)[:2]
    out = Pass("down", reads=("grad_h", "w_down"), writes={"out": "owned"}, flops=_NDF)
    return (
        *first,
        Pass("grad_h", reads=("grad_out", "w_down"), writes={"grad_h": "owned"}, flops=_NDF),
        Pass(
            "activation",
            reads=(*hidden, "grad_h"),
            writes=dict.fromkeys((*hidden, "grad_h"), "owned"),
        ),
        *((out,) if with_out else ()),
        Pass(
            "grad_down", reads=("grad_h", "grad_out"), writes={"grad_w_down": "owned"}, flops=_NDF
        ),
        *(_grad_joined(x, grad_x) if joined else _grad_separate(x, grad_x)),
    )


def _grad_joined(x: str, grad_x: str) -> tuple[Pass, ...]:
    return (
        Pass("grad_gate_up", reads=(x, "uv"), writes={"grad_joined": "owned"}, flops=f"2*{_NDF}"),
        Pass(
            "part",
            reads=("grad_joined",),
            writes={"grad_w_gate": "owned", "grad_w_up": "owned"},
        ),
        Pass("grad_x", reads=("uv", "joined"), writes={grad_x: "owned"}, flops=f"2*{_NDF}"),
    )


def _grad_separate(x: str, grad_x: str) -> tuple[Pass, ...]:
    return (
        Pass("grad_gate", reads=(x, "u"), writes={"grad_w_gate": "owned"}, flops=_NDF),
        Pass("grad_up", reads=(x, "v"), writes={"grad_w_up": "owned"}, flops=_NDF),
        Pass("grad_x_gate", reads=("u", "w_gate"), writes={grad_x: "owned"}, flops=_NDF),
        Pass("grad_x_up", reads=("v", "w_up"), writes={"lines": "owned"}, flops=_NDF),
        Pass("grad_x", reads=(grad_x, "lines"), writes={grad_x: "owned"}),
    )


NORM_ROWS = 16
NORM_TILES = Intermediate(
    "tiles", ("threads", f"ceil_div({3 * NORM_ROWS}*D + D + {NORM_ROWS}, 64)*64")
)
WEIGHT_PARTS = Intermediate("weight_parts", ("2*threads", "D"))
NORM = (
    Pass(
        "norm",
        parallel={"N": NORM_ROWS},
        reads={"x": 1, "weight": "threads"},
        writes={"z": "owned"},
        flops="4*N*D",
    ),
)
NORM_GRADIENTS = (
    Pass(
        "norm_gradients",
        parallel={"N": NORM_ROWS},
        reads={"x": 1, "grad_z": 1, "weight": "threads"},
        writes={"grad_x": "owned", "weight_parts": "reduction"},
        flops="11*N*D",
    ),
    Pass("sum_norm", parallel=("D",), reads=("weight_parts",), writes={"grad_weight": "owned"}),
)
NUMPY_NORM = (
    Pass("squares", reads=("x",), writes={"lines": "owned"}, flops="N*D"),
    Pass("inverse", reads=("lines",), writes={"inverse": "owned"}, flops="N*D"),
    Pass("scale", reads=("x", "inverse"), writes={"z": "owned"}, flops="N*D"),
    Pass("weight", reads=("z", "weight"), writes={"z": "owned"}, flops="N*D"),
)
NUMPY_NORM_GRADIENTS = (
    Pass("unit", reads=("x", "inverse"), writes={"lines": "owned"}, flops="N*D"),
    Pass("norm_weight", reads=("lines", "grad_z"), writes={"grad_weight": "owned"}, flops="2*N*D"),
    Pass("scaled", reads=("grad_z", "weight"), writes={"grad_x": "owned"}, flops="N*D"),
    Pass("slope", reads=("lines", "grad_x"), writes={"slope": "owned"}, flops="2*N*D"),
    Pass("project", reads=("lines", "slope"), writes={"lines": "owned"}, flops="N*D"),
    Pass("subtract", reads=("grad_x", "lines"), writes={"grad_x": "owned"}, flops="N*D"),
    Pass("rescale", reads=("grad_x", "inverse"), writes={"grad_x": "owned"}, flops="N*D"),
)
# Without a residual these sweeps are left out: what they write is then counted once too often.
RESIDUAL_OUT = Pass(
    "residual",
    reads={"out": "residual", "x": "residual"},
    writes={"out": "owned"},
    launches="residual",
)
RESIDUAL_GRAD = Pass(
    "residual_grad",
    reads={"grad_x": "residual", "grad_out": "residual"},
    writes={"grad_x": "owned"},
    launches="residual",
)

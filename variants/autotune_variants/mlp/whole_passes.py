"""The passes and temporaries of the variants on whole matrices, each declared once.

`x` and `grad_x` are those of the MLP itself: z and grad_z where x is normalised first.
"""

from __future__ import annotations

from autotune import Intermediate, Pass

_NDF = "2*N*D*F"

ROWS, LIKE_X = ("N", "F"), ("N", "D")
NORM_ROWS = 16  # tokens in a tile of the normalisation
HIDDEN = (Intermediate("u", ROWS), Intermediate("v", ROWS))
GRAD_H = Intermediate("grad_h", ROWS)
JOINED = (Intermediate("joined", ("D", "2*F")), Intermediate("uv", ("N", "2*F")))
GRAD_JOINED = Intermediate("grad_joined", ("D", "2*F"))
NORMAL = Intermediate("z", LIKE_X)

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

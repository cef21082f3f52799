"""The passes of the tiled CUDA variants.

Blocks that run at the same time stream the same rows at about the same time, so that device memory
is read once: repeated reads are the cache's.
"""

from __future__ import annotations

from autotune import Intermediate, Pass
from autotune.model.variant import Accumulation
from autotune_variants.attention.cuda.tiled_space import Pass as Names

ROW_VECTOR = ("B", "H", "Nq")
DELTA, SHIFT, INVERSE = (
    Intermediate(name, ROW_VECTOR, "accumulator") for name in ("delta", "shift", "inverse")
)
# In float64 weights without their row's factor: see STORED in tiled_config.cuh.
SCORES = Intermediate("scores", ("B", "H", "Nq", "8 * ceil_div(Nk, 8)"), "accumulator")

_BLOCK = "16 * rows"
_PRODUCT = "2*B*H*Nq*Nk*D"
_VECTORS = ("delta", "shift", "inverse")
Writes = dict[str, Accumulation]


def forward(
    own: Names, *, writes: Writes, reads: tuple[str, ...] = (), launches: str | int = 1
) -> Pass:
    """Blocks of queries, online softmax over the keys."""
    return Pass(
        "forward",
        parallel={"B": 1, "H": 1, "Nq": _BLOCK},
        sequential={"Nk": own.step},
        reads=("q", "k", "v", *reads),
        writes=writes,
        flops=f"2*{_PRODUCT}",
        launches=launches,
    )


def forward_train(own: Names, *, atomic: bool, stored: bool) -> Pass:
    """The forward of a training step: what the backward wants of each row, zeros to add to."""
    kept: Writes = dict.fromkeys(("out", *_VECTORS), "owned")
    if atomic:
        kept["grad_q"] = "owned"
    if stored:
        kept["scores"] = "owned"
    # blocks that hold only a part of each row leave delta to a kernel of its own
    launches = "1 if chunks == 1 else 2"
    return forward(own, writes=kept, reads=("grad_out",), launches=launches)


def prepare(*, atomic: bool) -> Pass:
    """Delta from out and grad_out; shift and inverse from lse; zeros to add to."""
    kept: Writes = dict.fromkeys(_VECTORS, "owned")
    if atomic:
        kept["grad_q"] = "owned"
    return Pass(
        "prepare",
        parallel=ROW_VECTOR,
        reads=("out", "grad_out", "lse"),
        writes=kept,
        flops="2*B*H*Nq*D",
    )


def columns(own: Names, *, atomic: bool, stored: bool) -> Pass:
    """Blocks of keys: GK and GV, and GQ by additions from every block of keys."""
    kept: Writes = {"grad_k": "owned", "grad_v": "owned"}
    if atomic:
        kept["grad_q"] = "atomic"
    extra = ("scores",) if stored else ()
    return Pass(
        "columns",
        parallel={"B": 1, "H": 1, "Nk": _BLOCK},
        sequential={"Nq": own.step},
        reads=("q", "k", "v", "grad_out", *_VECTORS, *extra),
        writes=kept,
        flops=f"{(3 if stored else 4) + atomic}*{_PRODUCT}",
    )


def rows(own: Names, *, stored: bool) -> Pass:
    """Blocks of queries: GQ, from weights computed once more; `joined`: by the columns' kernel."""
    extra = ("scores",) if stored else ()
    return Pass(
        "rows",
        parallel={"B": 1, "H": 1, "Nq": _BLOCK},
        sequential={"Nk": own.step},
        reads=("q", "k", "v", "grad_out", *_VECTORS, *extra),
        writes={"grad_q": "owned"},
        flops=f"{2 if stored else 3}*{_PRODUCT}",
        launches="0 if joined else 1",
    )

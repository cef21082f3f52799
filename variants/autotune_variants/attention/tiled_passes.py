"""The passes of the tiled variants, each declared once."""

from __future__ import annotations

from autotune import Pass

_PER_QUERY_TILE = "ceil_div(Nq, block_q) * H / max(Hkv, 1)"
_PER_KEY_TILE = "ceil_div(Nk, block_k)"
_QK, _PV = "2*B*H*Nq*Nk*D", "2*B*H*Nq*Nk*Dv"

FORWARD = Pass(
    "forward",
    parallel={"B": 1, "H": 1, "Nq": "block_q"},
    sequential={"Nk": "block_k"},
    reads={"q": 1, "k": _PER_QUERY_TILE, "v": _PER_QUERY_TILE},
    writes={"out": "owned", "lse": "owned"},
    flops=f"{_QK} + {_PV}",
)
DELTA = Pass(
    "delta",
    parallel=("B", "H", "Nq"),
    reads=("out", "grad_out"),
    writes={"delta": "owned"},
    flops="2*B*H*Nq*Dv",
)
GRADIENTS = Pass(
    "gradients",
    parallel={"B": 1, "Hkv": 1, "Nk": "block_k"},
    sequential={"Nq": "block_q"},
    reads={
        **{"k": 1, "v": 1, "q": _PER_KEY_TILE, "grad_out": _PER_KEY_TILE},
        **{"lse": _PER_KEY_TILE, "delta": _PER_KEY_TILE},
    },
    writes={
        **{"grad_k": "owned", "grad_v": "owned"},
        **{"grad_q": "reduction", "query_parts": "reduction"},
    },
    flops=f"3*{_QK} + 2*{_PV}",
)
SUM_QUERIES = Pass(
    "sum_queries",
    parallel=("B", "H", "Nq"),
    reads=("grad_q", "query_parts"),
    writes={"grad_q": "owned"},
)
FUSED = Pass(
    "fused",
    parallel={"B": 1, "H": 1, "Nq": "block_q"},
    sequential={"Nk": "block_k"},
    reads={"q": 1, "grad_out": 1, "k": f"2*{_PER_QUERY_TILE}", "v": f"2*{_PER_QUERY_TILE}"},
    writes={
        **{"out": "owned", "grad_q": "owned", "grad_k": "reduction", "grad_v": "reduction"},
        **{"key_parts": "reduction", "value_parts": "reduction"},
    },
    flops=f"3*{_QK} + 3*{_PV}",
)
SUM_KEYS = Pass(
    "sum_keys",
    parallel=("B", "Hkv", "Nk"),
    reads=("grad_k", "grad_v", "key_parts", "value_parts"),
    writes={"grad_k": "owned", "grad_v": "owned"},
)

"""The passes of the study's arrangements, each declared once and shared by its variants."""

from __future__ import annotations

from autotune import Choice, Pass, Placement, PowerOfTwo, Threads

_ROWS = {"B": 1, "H": 1, "Nq": "block_q"}
_COLUMNS = {"B": 1, "Hkv": 1, "Nk": "block_k"}
_OVER_KEYS = {"Nk": "block_k"}
_OVER_QUERIES = {"Nq": "block_q"}
# How often a sweep over blocks of query rows reads K or V, and one over blocks of keys Q or dO.
_PER_ROW_BLOCK = "ceil_div(Nq, block_q) * H / max(Hkv, 1)"
_PER_COLUMN_BLOCK = "ceil_div(Nk, block_k)"
_QK, _PV = "2*B*H*Nq*Nk*D", "2*B*H*Nq*Nk*Dv"

_KV_READS = {"k": _PER_ROW_BLOCK, "v": _PER_ROW_BLOCK}
_QG_READS = {"q": _PER_COLUMN_BLOCK, "grad_out": _PER_COLUMN_BLOCK}

FORWARD_STORED = Pass(
    "forward",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"q": 1, **_KV_READS},
    writes={"a": "owned", "out": "owned", "lse": "owned"},
    flops=f"{_QK} + {_PV}",
)
FORWARD_ONLINE = Pass(
    "forward",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"q": 1, **_KV_READS},
    writes={"out": "owned", "lse": "owned"},
    flops=f"{_QK} + {_PV}",
)
PROBABILITIES = Pass(
    "probabilities",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"q": 1, "k": _PER_ROW_BLOCK, "lse": 1},
    writes={"a": "owned"},
    flops=_QK,
)
CORRECTIONS = Pass(
    "corrections",
    parallel=_ROWS,
    reads=("out", "grad_out"),
    writes={"corrections": "owned"},
    flops="2*B*H*Nq*Dv",
)
GRAD_V_SWEPT = Pass(
    "grad_v",
    parallel=_COLUMNS,
    sequential={"Dv": 1, "Nq": 1},
    reads={"a": "Dv", "grad_out": _PER_COLUMN_BLOCK},
    writes={"grad_v": "owned"},
    flops=_PV,
)
GRAD_V_ON_CHIP = Pass(
    "grad_v",
    parallel=_COLUMNS,
    sequential=_OVER_QUERIES,
    reads={"a": 1, "grad_out": _PER_COLUMN_BLOCK},
    writes={"grad_v": "owned"},
    flops=_PV,
)
SCORE_GRADIENTS = Pass(
    "score_gradients",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"a": 1, "out": 1, "grad_out": 1, "v": _PER_ROW_BLOCK},
    writes={"gs": "owned"},
    flops=_PV,
)
GRAD_Q = Pass(
    "grad_q",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"gs": 1, "k": _PER_ROW_BLOCK},
    writes={"grad_q": "owned"},
    flops=_QK,
)
GRAD_Q_FROM_A = Pass(
    "grad_q",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"a": 1, "grad_out": 1, "corrections": 1, **_KV_READS},
    writes={"grad_q": "owned"},
    flops=f"{_QK} + {_PV}",
)
GRAD_Q_RECOMPUTED = Pass(
    "grad_q",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"q": 1, "grad_out": 1, "lse": 1, "corrections": 1, **_KV_READS},
    writes={"grad_q": "owned"},
    flops=f"2*{_QK} + {_PV}",
)
GRAD_Q_AND_K = Pass(
    "grad_q_k",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"gs": 1, "q": 1, "k": _PER_ROW_BLOCK},
    writes={"grad_q": "owned", "key_parts": "reduction"},
    flops=f"2*{_QK}",
)
GRAD_Q_AND_K_FROM_A = Pass(
    "grad_q_k",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"a": 1, "out": 1, "grad_out": 1, "q": 1, **_KV_READS},
    writes={"grad_q": "owned", "key_parts": "reduction"},
    flops=f"2*{_QK} + {_PV}",
)
GRAD_K_SWEPT = Pass(
    "grad_k",
    parallel=_COLUMNS,
    sequential={"D": 1, "Nq": 1},
    reads={"gs": "D", "q": _PER_COLUMN_BLOCK},
    writes={"grad_k": "owned"},
    flops=_QK,
)
GRAD_K_ON_CHIP = Pass(
    "grad_k",
    parallel=_COLUMNS,
    sequential=_OVER_QUERIES,
    reads={"gs": 1, "q": _PER_COLUMN_BLOCK},
    writes={"grad_k": "owned"},
    flops=_QK,
)
GRAD_K_FROM_A = Pass(
    "grad_k",
    parallel=_COLUMNS,
    sequential=_OVER_QUERIES,
    reads={"a": 1, "v": 1, "corrections": _PER_COLUMN_BLOCK, **_QG_READS},
    writes={"grad_k": "owned"},
    flops=f"{_QK} + {_PV}",
)
GRAD_K_AND_V = Pass(
    "grad_k_v",
    parallel=_COLUMNS,
    sequential=_OVER_QUERIES,
    reads={
        **{"k": 1, "v": 1, "lse": _PER_COLUMN_BLOCK, "corrections": _PER_COLUMN_BLOCK},
        **_QG_READS,
    },
    writes={"grad_k": "owned", "grad_v": "owned"},
    flops=f"2*{_QK} + 2*{_PV}",
)
EVERYTHING = Pass(
    "everything",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"q": 1, "grad_out": 1, **_KV_READS},
    writes={
        **{"out": "owned", "lse": "owned", "grad_q": "owned"},
        **{"key_parts": "reduction", "value_parts": "reduction"},
    },
    flops=f"3*{_QK} + 3*{_PV}",
)
ALL_GRADIENTS = Pass(
    "gradients",
    parallel=_ROWS,
    sequential=_OVER_KEYS,
    reads={"q": 1, "out": 1, "grad_out": 1, "lse": 1, **_KV_READS},
    writes={"grad_q": "owned", "key_parts": "reduction", "value_parts": "reduction"},
    flops=f"3*{_QK} + 2*{_PV}",
)
SUM_K = Pass(
    "sum_grad_k",
    parallel=("B", "Hkv", "Nk"),
    reads=("key_parts",),
    writes={"grad_k": "owned"},
    flops="threads*B*Hkv*Nk*D",
)
SUM_V = Pass(
    "sum_grad_v",
    parallel=("B", "Hkv", "Nk"),
    reads=("value_parts",),
    writes={"grad_v": "owned"},
    flops="threads*B*Hkv*Nk*Dv",
)

GRADIENTS: dict[str, tuple[Pass, ...]] = {
    "fused": (SUM_V, SUM_K),
    "separate": (GRAD_V_SWEPT, GRAD_Q_AND_K_FROM_A, SUM_K),
    "four_pass": (GRAD_V_SWEPT, SCORE_GRADIENTS, GRAD_Q_AND_K, SUM_K),
    "five_pass": (GRAD_V_SWEPT, SCORE_GRADIENTS, GRAD_Q, GRAD_K_SWEPT),
    "four_pass_on_chip": (GRAD_V_ON_CHIP, SCORE_GRADIENTS, GRAD_Q_AND_K, SUM_K),
    "five_pass_on_chip": (GRAD_V_ON_CHIP, SCORE_GRADIENTS, GRAD_Q, GRAD_K_ON_CHIP),
    "gs_recomputed": (CORRECTIONS, GRAD_V_ON_CHIP, GRAD_Q_FROM_A, GRAD_K_FROM_A),
    "all_recomputed": (CORRECTIONS, GRAD_K_AND_V, GRAD_Q_RECOMPUTED),
}

DTYPES = ("float32", "float64")
TUNABLES = (
    PowerOfTwo("block_q", 16, 128, default=64),
    PowerOfTwo("block_k", 32, 512, default=128),
    Choice("order", ("interleaved", "consecutive")),  # in which workers take blocks
    Threads(),
    Placement(),
)
# Blocks beyond the sizes are the same arrangement again.
CONSTRAINTS = (
    "block_q < 2*Nq or block_q == 16",
    "block_k < 2*Nk or block_k == 32",
)

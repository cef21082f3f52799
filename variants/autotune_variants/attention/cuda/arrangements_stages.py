"""The passes of the arrangements on CUDA, each declared once with the kernel that performs it.

Traffic is counted as in the study's cost model: an array of N x D once a pass, since it stays in
the cache, and an array of N x N as often as the pass sweeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune import Pass
from autotune_variants.attention.cuda.arrangements import COLUMNS, ROWS, SUMS, Stage, Step

_TILES = "B*H*ceil_div(Nq, rows)"
SCRATCH_BLOCKS = f"min(blocks, {_TILES})"
SPLIT_BLOCKS = "splits*B*H"
_COLUMN_TILES = "B*Hkv*ceil_div(Nk, columns)"

# Of the H query heads, H / Hkv share a key-value head: so many workers, times the row tiles of a
# head, add into one element of GK or GV. For GQ it is the column tiles of one key-value head.
_ROW_TILES = {"B": 1, "Hkv": 1, "H": "max(Hkv, 1)", "Nq": "rows"}
_OWN_COLUMNS = {"B": 1, "Hkv": 1, "Nk": "columns"}
_SHARED_COLUMNS = {"B": 1, "H": "max(H // max(Hkv, 1), 1)", "Nk": "columns"}
_SPLITS = {"B": 1, "H": 1, "Nq": "max(ceil_div(Nq, splits), 1)"}
_COPY_SWEEPS = "ceil_div(Nq, rows*splits)"  # every tile of rows adds to all of its split's copy

_QK, _PV = "2*B*H*Nq*Nk*D", "2*B*H*Nq*Nk*Dv"
_SWEEPS_V = "Dv if sweep == 'features' else 1"
_SWEEPS_K = "D if sweep == 'features' else 1"
_GS = Step.SCORE_GRADIENTS

Reads = tuple[str, ...] | Mapping[str, Any]
Writes = Mapping[str, Any]


def _rows(name: str, steps: Step, reads: Reads, writes: Writes, flops: str) -> Stage:
    """Parallel over tiles of query rows; with scratch, by no more than `blocks` blocks."""
    parallel, blocks = _ROW_TILES, SCRATCH_BLOCKS if "scratch" in writes else _TILES
    sequential = {"Nk": "block"}
    if steps & Step.OWN_COPIES:
        parallel, blocks = _SPLITS, SPLIT_BLOCKS
        sequential = {"Nq": "rows", "Nk": "block"}
    declared = Pass(name, parallel, sequential, reads, writes, flops)
    return Stage(declared, ROWS, name, steps, blocks)


def _columns(name: str, steps: Step, reads: Any, writes: Writes, flops: str) -> Stage:
    """Parallel over tiles of keys."""
    parallel = _SHARED_COLUMNS if steps & Step.GRAD_Q else _OWN_COLUMNS
    declared = Pass(name, parallel, {"Nq": 1}, reads, writes, flops)
    return Stage(declared, COLUMNS, name, steps, _COLUMN_TILES)


def _sums(
    entry: str, of: str, reads: Reads, writes: str, steps: Step, *, flops: str = "0"
) -> Stage:
    """Element by element over a gradient."""
    rows, dim = ("H*Nq", "D") if of == "q" else ("Hkv*Nk", "D" if of == "k" else "Dv")
    declared = Pass(f"{entry}_{of}", ("B",), (), reads, {writes: "owned"}, flops)
    blocks = f"min(ceil_div(B*{rows}*{dim}, block), 65536)"
    return Stage(declared, SUMS, entry, steps, blocks)


FORWARD_STORED = _rows(
    "forward",
    Step.SOFTMAX | Step.OUTPUT | Step.A_STORED,
    ("q", "k", "v"),
    {"a": "owned", "out": "owned"},
    f"{_QK} + {_PV}",
)
FORWARD_STORED_LSE = _rows(
    "forward_lse",
    Step.SOFTMAX | Step.OUTPUT | Step.A_STORED | Step.LSE,
    ("q", "k", "v"),
    {"a": "owned", "out": "owned", "lse": "owned"},
    f"{_QK} + {_PV}",
)
FORWARD = _rows(
    "forward_scratch",
    Step.SOFTMAX | Step.OUTPUT | Step.LSE,
    ("q", "k", "v"),
    {"scratch": "owned", "out": "owned", "lse": "owned"},
    f"{_QK} + {_PV}",
)
PROBABILITIES = _rows(
    "probabilities",
    Step.SOFTMAX | Step.A_STORED,
    ("q", "k"),
    {"a": "owned"},
    _QK,
)
CORRECTIONS = Stage(
    Pass(
        "output_corrections",
        ("B", "H", "Nq"),
        (),
        ("out", "grad_out"),
        {"corrections": "owned"},
        "2*B*H*Nq*Dv",
    ),
    SUMS,
    "output_corrections",
    Step(0),
    "min(ceil_div(32*B*H*Nq, block), 65536)",
)
GRAD_V = _columns(
    "grad_v",
    Step.GRAD_V | Step.A_STORED,
    {"a": _SWEEPS_V, "grad_out": 1},
    {"grad_v": "owned"},
    _PV,
)
GRAD_K = _columns(
    "grad_k",
    Step.GRAD_K | Step.GS_STORED,
    {"gs": _SWEEPS_K, "q": 1},
    {"grad_k": "owned"},
    _QK,
)
SCORE_GRADIENTS = _rows(
    "score_gradients",
    _GS | Step.A_STORED | Step.GS_STORED,
    ("a", "v", "grad_out"),
    {"gs": "owned"},
    _PV,
)
GRAD_Q = _rows("grad_q", Step.GRAD_Q | Step.GS_STORED, ("gs", "k"), {"grad_q": "owned"}, _QK)
GRAD_Q_STORING = _rows(
    "grad_q_storing",
    _GS | Step.GRAD_Q | Step.A_STORED | Step.GS_STORED,
    ("a", "k", "v", "grad_out"),
    {"gs": "owned", "grad_q": "owned"},
    f"{_QK} + {_PV}",
)
GRAD_Q_FROM_A = _rows(
    "grad_q_from_a",
    _GS | Step.GRAD_Q | Step.A_STORED | Step.CORRECTIONS,
    ("a", "k", "v", "grad_out"),
    {"scratch": "owned", "corrections": "owned", "grad_q": "owned"},
    f"{_QK} + {_PV}",
)
GRAD_Q_RECOMPUTED = _rows(
    "grad_q_recomputed",
    Step.SOFTMAX | _GS | Step.GRAD_Q | Step.CORRECTIONS,
    ("q", "k", "v", "grad_out"),
    {"scratch": "owned", "corrections": "owned", "grad_q": "owned"},
    f"2*{_QK} + {_PV}",
)
FORWARD_AND_GRAD_Q = _rows(
    "forward_grad_q",
    Step.OUTPUT | Step.LSE | GRAD_Q_RECOMPUTED.steps,
    ("q", "k", "v", "grad_out"),
    {**GRAD_Q_RECOMPUTED.declared.writes, "out": "owned", "lse": "owned"},
    f"2*{_QK} + 2*{_PV}",
)
GRAD_K_FROM_A = _columns(
    "grad_k_from_a",
    _GS | Step.GRAD_K | Step.A_STORED,
    ("a", "q", "v", "grad_out", "corrections"),
    {"grad_k": "owned"},
    f"{_QK} + {_PV}",
)
GRAD_K_AND_V = _columns(
    "grad_k_v",
    _GS | Step.GRAD_K | Step.GRAD_V,
    ("q", "k", "v", "grad_out", "lse", "corrections"),
    {"grad_k": "owned", "grad_v": "owned"},
    f"2*{_QK} + 2*{_PV}",
)
COPIED = _rows(
    "gradients_copied",
    Step.SOFTMAX | _GS | Step.GRAD_Q | Step.GRAD_K | Step.GRAD_V | Step.OWN_COPIES,
    {
        **dict.fromkeys(("q", "k", "v", "grad_out"), 1),
        **dict.fromkeys(("parts_k", "parts_v"), _COPY_SWEEPS),
    },
    {"scratch": "owned", "grad_q": "owned", "parts_k": "reduction", "parts_v": "reduction"},
    f"3*{_QK} + 2*{_PV}",
)
EVERYTHING_COPIED = _rows(
    "everything_copied",
    Step.OUTPUT | COPIED.steps,
    COPIED.declared.reads,
    {**COPIED.declared.writes, "out": "owned"},
    f"3*{_QK} + 3*{_PV}",
)
ADD_K = _sums("sum_copies", "k", ("parts_k",), "grad_k", Step.GRAD_K, flops="splits*B*H*Nk*D")
ADD_V = _sums("sum_copies", "v", ("parts_v",), "grad_v", Step.GRAD_V, flops="splits*B*H*Nk*Dv")


def _atomically(array: str, rounded: bool) -> dict[str, str]:
    return {f"sum_{array}" if rounded else f"grad_{array}": "atomic"}


def cleared(array: str, rounded: bool) -> Stage:
    """Zeros for atomic additions into the gradient of q, k or v."""
    (target,) = _atomically(array, rounded)
    return _sums("clear_sums", array, (), target, Step[f"GRAD_{array.upper()}"])


def rounding(array: str) -> Stage:
    """Sums in float32 rounded into the gradient of q, k or v."""
    reads, step = (f"sum_{array}",), Step[f"GRAD_{array.upper()}"]
    return _sums("round_sums", array, reads, f"grad_{array}", step)


def grad_q_and_k(rounded: bool) -> Stage:
    """GQ and, atomically, GK from GS (the study's v3)."""
    return _rows(
        "grad_q_k",
        Step.GRAD_Q | Step.GRAD_K | Step.GS_STORED,
        ("gs", "q", "k"),
        {"grad_q": "owned", **_atomically("k", rounded)},
        f"2*{_QK}",
    )


def grad_q_and_k_from_a(rounded: bool) -> Stage:
    """GQ and, atomically, GK from A; GS stays in the row's scratch (the study's backward)."""
    return _rows(
        "grad_q_k_from_a",
        _GS | Step.GRAD_Q | Step.GRAD_K | Step.A_STORED,
        ("a", "q", "k", "v", "grad_out"),
        {"scratch": "owned", "grad_q": "owned", **_atomically("k", rounded)},
        f"2*{_QK} + {_PV}",
    )


def swept(rounded: bool, output: bool) -> Stage:
    """All of a row at once, GV and GK atomically; A and GS stay in scratch (the study's v2)."""
    steps = Step.SOFTMAX | _GS | Step.GRAD_Q | Step.GRAD_K | Step.GRAD_V
    return _rows(
        "everything" if output else "gradients",
        steps | Step.OUTPUT if output else steps,
        ("q", "k", "v", "grad_out"),
        {
            **{"scratch": "owned", "grad_q": "owned", **({"out": "owned"} if output else {})},
            **_atomically("v", rounded),
            **_atomically("k", rounded),
        },
        f"3*{_QK} + {'3' if output else '2'}*{_PV}",
    )


def columns_with_grad_q(rounded: bool) -> Stage:
    """GK and GV on chip and, atomically, GQ; A and GS recomputed."""
    return _columns(
        "grad_k_v_q",
        _GS | Step.GRAD_K | Step.GRAD_V | Step.GRAD_Q,
        ("q", "k", "v", "grad_out", "lse", "corrections"),
        {"grad_k": "owned", "grad_v": "owned", **_atomically("q", rounded)},
        f"3*{_QK} + 2*{_PV}",
    )

"""The temporary arrays of every arrangement, named once for declarations and kernels."""

from __future__ import annotations

from autotune import Intermediate

_SHAPES: dict[str, tuple[str | int, ...]] = {
    # arrays of the algorithm
    "a": ("B", "H", "Nq", "Nk"),
    "gs": ("B", "H", "Nq", "Nk"),
    "lse": ("B", "H", "Nq"),
    "corrections": ("B", "H", "Nq"),
    "key_parts": ("threads", "B", "Hkv", "Nk", "D"),
    "value_parts": ("threads", "B", "Hkv", "Nk", "Dv"),
    # one block of rows per worker
    "a_rows": ("threads", "block_q", "Nk"),
    "gs_rows": ("threads", "block_q", "Nk"),
    # tiles per worker
    "q_tile": ("threads", "block_q", "D"),
    "g_tile": ("threads", "block_q", "Dv"),
    "k_tile": ("threads", "block_k", "D"),
    "v_tile": ("threads", "block_k", "Dv"),
    "k_transposed": ("threads", "D", "block_k"),
    "v_transposed": ("threads", "Dv", "block_k"),
    "scores": ("threads", "block_q", "block_k"),
    "gradients": ("threads", "block_q", "block_k"),
    "acc_out": ("threads", "block_q", "Dv"),
    "acc_q": ("threads", "block_q", "D"),
    "acc_k": ("threads", "block_k", "D"),
    "acc_v": ("threads", "block_k", "Dv"),
    "row_stats": ("threads", 2, "block_q"),
    "line": ("threads", "block_k"),
}

_SCORES = ("q_tile", "k_transposed", "scores")
_OUTPUT = ("v_tile", "acc_out")
_GRADIENT_ROWS = ("g_tile", "v_transposed")
_QUERY = ("k_tile", "acc_q")

FORWARD: dict[str, tuple[str, ...]] = {
    "stored": ("a", *_SCORES, *_OUTPUT),
    "online": ("row_stats", *_SCORES, *_OUTPUT),
}

GRADIENTS: dict[str, tuple[str, ...]] = {
    "separate": ("a", "key_parts", "gs_rows", *_SCORES, *_GRADIENT_ROWS, *_QUERY, "line"),
    "fused": ("key_parts", "value_parts", "a_rows", "gs_rows", *_SCORES, *_GRADIENT_ROWS, *_QUERY),
    "four_pass": ("a", "gs", "key_parts", *_SCORES, *_GRADIENT_ROWS, *_QUERY, "line"),
    "five_pass": ("a", "gs", *_SCORES, *_GRADIENT_ROWS, *_QUERY, "line"),
    "four_pass_on_chip": ("a", "gs", "key_parts", *_SCORES, *_GRADIENT_ROWS, *_QUERY, "acc_v"),
    "five_pass_on_chip": ("a", "gs", *_SCORES, *_GRADIENT_ROWS, *_QUERY, "acc_v", "acc_k"),
    "gs_recomputed": (
        *("a", "corrections", "gradients", *_SCORES, *_GRADIENT_ROWS, *_QUERY, "acc_v", "acc_k"),
    ),
    "all_recomputed": (
        *("corrections", "gradients", *_SCORES, *_GRADIENT_ROWS, *_QUERY, "acc_v", "acc_k"),
    ),
}


def train_temporaries(arrangement: str) -> tuple[str, ...]:
    """Names for forward and gradients in one call: those of the gradients, lse and the output's."""
    online = ("row_stats",) if arrangement == "all_recomputed" else ()
    return ("lse", *GRADIENTS[arrangement], *_OUTPUT, *online)


def intermediates(names: tuple[str, ...]) -> tuple[Intermediate, ...]:
    """Declarations of the named temporaries, in order."""
    return tuple(Intermediate(name, _SHAPES[name]) for name in names)

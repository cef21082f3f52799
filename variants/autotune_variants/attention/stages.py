"""The stages of every arrangement: which kernel runs, and what it does with each block."""

from __future__ import annotations

from autotune_variants.attention.kernels_columns import columns_on_chip, columns_swept
from autotune_variants.attention.kernels_recompute import (
    corrections,
    forward_online,
    key_tiles,
    query_tiles,
)
from autotune_variants.attention.kernels_rows import rows, sum_parts
from autotune_variants.attention.plan import Stage, Step

_STORED = Step.A_STORED | Step.GS_STORED
_ROW = Step.SCORE_GRADIENTS | Step.GRAD_Q

FORWARD: dict[str, tuple[Stage, ...]] = {
    "stored": ((rows, Step.SOFTMAX | Step.OUTPUT | Step.A_STORED),),
    "online": ((forward_online, Step(0)),),
}

A_FROM_LSE: tuple[Stage, ...] = ((rows, Step.PROBABILITIES | Step.A_STORED),)

FUSED_TRAIN: tuple[Stage, ...] = (
    (rows, Step.SOFTMAX | Step.OUTPUT | _ROW | Step.GRAD_K | Step.GRAD_V),
    (sum_parts, Step.GRAD_V),
    (sum_parts, Step.GRAD_K),
)
FUSED_BACKWARD: tuple[Stage, ...] = (
    (rows, Step.PROBABILITIES | _ROW | Step.GRAD_K | Step.GRAD_V),
    (sum_parts, Step.GRAD_V),
    (sum_parts, Step.GRAD_K),
)

# Once A is stored, or, for "all_recomputed", once Out and lse are known.
GRADIENTS: dict[str, tuple[Stage, ...]] = {
    "separate": (
        (columns_swept, Step.GRAD_V),
        (rows, Step.A_STORED | _ROW | Step.GRAD_K),
        (sum_parts, Step.GRAD_K),
    ),
    "four_pass": (
        (columns_swept, Step.GRAD_V),
        (rows, Step.SCORE_GRADIENTS | _STORED),
        (rows, Step.GRAD_Q | Step.GRAD_K | Step.GS_STORED),
        (sum_parts, Step.GRAD_K),
    ),
    "five_pass": (
        (columns_swept, Step.GRAD_V),
        (rows, Step.SCORE_GRADIENTS | _STORED),
        (rows, Step.GRAD_Q | Step.GS_STORED),
        (columns_swept, Step.GRAD_K),
    ),
    "four_pass_on_chip": (
        (columns_on_chip, Step.GRAD_V),
        (rows, Step.SCORE_GRADIENTS | _STORED),
        (rows, Step.GRAD_Q | Step.GRAD_K | Step.GS_STORED),
        (sum_parts, Step.GRAD_K),
    ),
    "five_pass_on_chip": (
        (columns_on_chip, Step.GRAD_V),
        (rows, Step.SCORE_GRADIENTS | _STORED),
        (rows, Step.GRAD_Q | Step.GS_STORED),
        (columns_on_chip, Step.GRAD_K),
    ),
    "gs_recomputed": (
        (corrections, Step(0)),
        (columns_on_chip, Step.GRAD_V),
        (query_tiles, Step.GRAD_Q | Step.A_STORED),
        (key_tiles, Step.GRAD_K | Step.A_STORED),
    ),
    "all_recomputed": (
        (corrections, Step(0)),
        (key_tiles, Step.GRAD_K | Step.GRAD_V),
        (query_tiles, Step.GRAD_Q),
    ),
}

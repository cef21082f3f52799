"""The study's own count for the transformer block, in elements.

It leaves out the weights and the scores that the study's kernels store.
"""

from __future__ import annotations

from autotune_variants.mlp.published import mlp_elements
from autotune_variants.norm.published import norm_elements


def projection_elements(tokens: int, width: int) -> int:
    """Elements moved by the projections to q, k and v, 4 n d (HAL 05734881)."""
    return 4 * tokens * width


def attention_elements(tokens: int, width: int) -> int:
    """Elements moved by attention, forward and backward fused, 8 n d (HAL 05734881)."""
    return 8 * tokens * width


def block_elements(tokens: int, width: int, hidden: int) -> int:
    """Elements moved by the block, 24 n d + 4 n d_ff (HAL 05734881).

    Two normalisations, the projections, attention, the gated MLP, and 2 n d for the residuals.
    """
    return (
        2 * norm_elements(tokens, width)
        + projection_elements(tokens, width)
        + attention_elements(tokens, width)
        + mlp_elements(tokens, width, hidden)
        + 2 * tokens * width
    )

"""The study's own counts for the gated MLP, in elements; weights are left out there."""

from __future__ import annotations

from autotune_variants.norm.published import norm_elements


def mlp_elements(tokens: int, width: int, hidden: int) -> int:
    """Elements moved by forward and backward, 2 n d + 4 n d_ff (HAL 05734881)."""
    return 2 * tokens * width + 4 * tokens * hidden


def norm_mlp_elements(tokens: int, width: int, hidden: int) -> int:
    """Elements moved by the normalisation and the gated MLP behind it: the sum of their counts."""
    return norm_elements(tokens, width) + mlp_elements(tokens, width, hidden)

"""The study's own counts for the normalisation, in elements; weights are left out there."""

from __future__ import annotations


def norm_elements(tokens: int, width: int) -> int:
    """Elements moved by forward and backward, 4 n d (HAL 05734881)."""
    return 4 * tokens * width

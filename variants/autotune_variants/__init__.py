"""The built-in operations and variants; importing this package registers them."""

from autotune_variants import proposals
from autotune_variants.attention import (
    plain,
    tiled,
    variants_backward,
    variants_forward,
    variants_train,
)
from autotune_variants.attention.cuda import arrangements_variants, tiled_variants, wgmma_variants
from autotune_variants.decode import variants as variants_decode

__all__ = [
    "arrangements_variants",
    "plain",
    "proposals",
    "tiled",
    "tiled_variants",
    "variants_backward",
    "variants_decode",
    "variants_forward",
    "variants_train",
    "wgmma_variants",
]

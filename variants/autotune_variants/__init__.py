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
from autotune_variants.decode import append
from autotune_variants.decode import variants as variants_decode
from autotune_variants.decode.cuda import variants as cuda_decode
from autotune_variants.mlp import tiled as tiled_mlp
from autotune_variants.mlp import whole_variants as whole_mlp
from autotune_variants.mlp.cuda import split_variants as cuda_split_mlp
from autotune_variants.mlp.cuda import tiled_variants as cuda_tiled_mlp
from autotune_variants.mlp.cuda import whole_variants as cuda_whole_mlp
from autotune_variants.norm import variants as variants_norm
from autotune_variants.norm.cuda import variants as cuda_norm

# isort: split
# Behind numba's: of what predictions hold equal, the first serves.
from autotune_variants.native import variants as variants_native

# isort: split
from autotune_variants.block import variants as variants_block  # composed of all the others
from autotune_variants.block.cuda import variants as cuda_block

__all__ = [
    "append",
    "arrangements_variants",
    "cuda_block",
    "cuda_decode",
    "cuda_norm",
    "cuda_split_mlp",
    "cuda_tiled_mlp",
    "cuda_whole_mlp",
    "plain",
    "proposals",
    "tiled",
    "tiled_mlp",
    "tiled_variants",
    "variants_backward",
    "variants_block",
    "variants_decode",
    "variants_forward",
    "variants_native",
    "variants_norm",
    "variants_train",
    "wgmma_variants",
    "whole_mlp",
]

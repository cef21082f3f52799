"""Matrix products for references, as those of attention have them, and what 16 bits round."""

from autotune_variants.attention.reference import (
    Array,
)
from autotune_variants.attention.reference import (
    _exact as exact,
)
from autotune_variants.attention.reference import (
    _opposite as opposite,
)
from autotune_variants.attention.reference import (
    _rounded as rounded,
)
from autotune_variants.attention.reference import (
    _widened as widened,
)

__all__ = ["Array", "exact", "opposite", "rounded", "widened"]

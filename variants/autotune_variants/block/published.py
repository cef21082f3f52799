"""What the study counts for the transformer block: elements moved, forward and backward together.

Two normalisations (4 n d each), the projections to q, k and v (4 n d), attention with its
gradients (8 n d), the gated MLP (2 n d + 4 n d_ff) and the residuals (2 n d), with n = B*N.
"""

from __future__ import annotations

from autotune import Published
from autotune_variants.norm.published import SOURCE

_ND, _NF = "B*N*D", "B*N*F"

TRAIN = (
    Published(
        "forward and backward",
        SOURCE,
        moved=f"2*4*{_ND} + 4*{_ND} + 8*{_ND} + (2*{_ND} + 4*{_NF}) + 2*{_ND}",
        without="weights; the n x n scores; several heads; masks",
    ),
)

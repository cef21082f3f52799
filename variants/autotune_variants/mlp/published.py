"""What the study counts for the gated MLP: elements moved, forward and backward together."""

from __future__ import annotations

from autotune import Published
from autotune_variants.norm import published as norm

MOVED = "2*N*D + 4*N*F"

TRAIN = (Published("forward and backward", norm.SOURCE, moved=MOVED, without="weights"),)
NORM_TRAIN = (
    Published(
        "normalisation and MLP, forward and backward",
        norm.SOURCE,
        moved=f"{norm.MOVED} + {MOVED}",
        without="weights",
    ),
)

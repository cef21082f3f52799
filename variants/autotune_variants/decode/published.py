"""What the study counts for decode, one query per head: elements moved."""

from __future__ import annotations

from autotune import Published

COUNTS = (
    Published(
        "decode",
        "arXiv 2607.19456",
        moved="B*(H*D + Hkv*N*D + Hkv*N*Dv + H*Dv)",
        read="B*(H*D + Hkv*N*D + Hkv*N*Dv)",
        written="B*H*Dv",
        variants=("split", "unsplit", "three_pass"),
        without="scores and partial results",
    ),
)

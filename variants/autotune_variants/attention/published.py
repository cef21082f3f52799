"""What the study counts for attention: elements moved and atomic additions, as it prints them.

The study is about one head without a mask; here its n x n array has B*H heads, and what belongs to
keys has B*Hkv.
"""

from __future__ import annotations

from autotune import Published

_VALIDATION = "arXiv 2609.33916"
_BACKWARD = "HAL 05659212"
_ONE_HEAD = "masks; several heads"

_QUERIES, _KEYS = "B*H*Nq*D", "B*Hkv*Nk*D"
_VALUES, _OUT = "B*Hkv*Nk*Dv", "B*H*Nq*Dv"
_MATRIX = "B*H*Nq*Nk"
_INPUTS = f"{_QUERIES} + {_KEYS} + {_VALUES}"

FORWARD = (
    Published(
        "forward, A stored",
        _VALIDATION,
        moved=f"{_MATRIX} + {_INPUTS} + {_OUT}",
        read=_INPUTS,
        written=f"{_MATRIX} + {_OUT}",
        variants=("stored", "cuda_stored", "cuda_arranged_stored"),
        without=f"lse; {_ONE_HEAD}",
    ),
    Published(
        "forward, A on chip",
        "arXiv 2606.07713",
        moved=_INPUTS,
        variants=("online", "blas_tiled", "simd_tiled", "cuda_dmma", "cuda_tf32x3", "cuda_mma"),
        without=f"the output; lse; {_ONE_HEAD}",
    ),
)

_BACKWARD_MOVED = f"{_MATRIX} + 2*{_QUERIES} + 2*{_KEYS} + 2*{_VALUES} + {_OUT}"

BACKWARD = (
    Published(
        "backward, GK atomic",
        _BACKWARD,
        moved=_BACKWARD_MOVED,
        atomics=f"{_MATRIX}*D",
        variants=("cuda_separate",),
        without=f"A made from lse; repeated sweeps of A; {_ONE_HEAD}",
    ),
    Published(
        "backward, no atomics",
        _BACKWARD,
        moved=_BACKWARD_MOVED,
        atomics=0,
        variants=("cuda_separate_stored",),
        without=f"A made from lse; GS; repeated sweeps of A and GS; {_ONE_HEAD}",
    ),
)

_FUSED_MOVED = f"2*{_QUERIES} + 2*{_KEYS} + 2*{_VALUES} + 2*{_OUT}"

TRAIN = (
    Published(
        "fused, GV and GK atomic (v2)",
        _VALIDATION,
        moved=_FUSED_MOVED,
        atomics=f"{_MATRIX}*(D + Dv)",
        variants=("cuda_v2",),
        without=f"scratch; {_ONE_HEAD}",
    ),
    Published(
        "fused, GK atomic (v3)",
        _VALIDATION,
        moved=_FUSED_MOVED,
        atomics=f"{_MATRIX}*D",
        variants=("cuda_v3",),
        without=f"A and GS, stored and swept; {_ONE_HEAD}",
    ),
    Published(
        "fused, no atomics (v4)",
        _VALIDATION,
        moved=_FUSED_MOVED,
        atomics=0,
        variants=("five_pass", "cuda_v4"),
        without=f"A and GS, stored and swept; {_ONE_HEAD}",
    ),
)

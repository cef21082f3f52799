"""Variants of attention: the study's forward with A stored, and without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import variant
from autotune_variants.attention import passes
from autotune_variants.attention.operations import attention
from autotune_variants.attention.plan import staged
from autotune_variants.attention.temporaries import FORWARD, intermediates

Run = Callable[..., None]


@variant(
    attention,
    "stored",
    dtypes=passes.DTYPES,
    passes=(passes.FORWARD_STORED,),
    intermediates=intermediates(FORWARD["stored"]),
    tunables=passes.TUNABLES,
    constraints=passes.CONSTRAINTS,
)
def stored(problem: Any, config: Mapping[str, Any]) -> Run:
    """A written to memory, a block of query rows at a time (the study's forward)."""
    from autotune_variants.attention import stages

    return staged(problem, config, FORWARD["stored"], stages.FORWARD["stored"])


@variant(
    attention,
    "online",
    dtypes=passes.DTYPES,
    passes=(passes.FORWARD_ONLINE,),
    intermediates=intermediates(FORWARD["online"]),
    tunables=passes.TUNABLES,
    constraints=passes.CONSTRAINTS,
)
def online(problem: Any, config: Mapping[str, Any]) -> Run:
    """Online softmax over blocks of keys; scores never leave their tile."""
    from autotune_variants.attention import stages

    return staged(problem, config, FORWARD["online"], stages.FORWARD["online"])

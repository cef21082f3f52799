"""Variants of attention_backward: the study's arrangements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import variant
from autotune_variants.attention import passes
from autotune_variants.attention.operations import attention_backward
from autotune_variants.attention.plan import staged
from autotune_variants.attention.temporaries import GRADIENTS, intermediates

Run = Callable[..., None]


def _declare(arrangement: str, *first: Any) -> Callable[..., Any]:
    return variant(
        attention_backward,
        arrangement,
        passes=(*first, *passes.GRADIENTS[arrangement]),
        intermediates=intermediates(GRADIENTS[arrangement]),
        dtypes=passes.DTYPES,
        tunables=passes.TUNABLES,
        constraints=passes.CONSTRAINTS,
    )


@_declare("fused", passes.ALL_GRADIENTS)
def fused(problem: Any, config: Mapping[str, Any]) -> Run:
    """One sweep over the rows; GV and GK accumulated per thread and summed (the study's v2)."""
    from autotune_variants.attention import stages

    order = stages.FUSED_BACKWARD
    return staged(problem, config, GRADIENTS["fused"], order)


@_declare("separate", passes.PROBABILITIES)
def separate(problem: Any, config: Mapping[str, Any]) -> Run:
    """GV by columns, then GQ with GK accumulated per thread; GS a temporary of some rows."""
    from autotune_variants.attention import stages

    order = (*stages.A_FROM_LSE, *stages.GRADIENTS["separate"])
    return staged(problem, config, GRADIENTS["separate"], order)


@_declare("four_pass", passes.PROBABILITIES)
def four_pass(problem: Any, config: Mapping[str, Any]) -> Run:
    """A and GS stored; GV by columns, GK accumulated per thread (the study's v3)."""
    from autotune_variants.attention import stages

    order = (*stages.A_FROM_LSE, *stages.GRADIENTS["four_pass"])
    return staged(problem, config, GRADIENTS["four_pass"], order)


@_declare("five_pass", passes.PROBABILITIES)
def five_pass(problem: Any, config: Mapping[str, Any]) -> Run:
    """A and GS stored; GV and GK both by columns (the study's v4)."""
    from autotune_variants.attention import stages

    order = (*stages.A_FROM_LSE, *stages.GRADIENTS["five_pass"])
    return staged(problem, config, GRADIENTS["five_pass"], order)


@_declare("four_pass_on_chip", passes.PROBABILITIES)
def four_pass_on_chip(problem: Any, config: Mapping[str, Any]) -> Run:
    """As four_pass, but a column sweep reads A once, not once per feature."""
    from autotune_variants.attention import stages

    order = (*stages.A_FROM_LSE, *stages.GRADIENTS["four_pass_on_chip"])
    return staged(problem, config, GRADIENTS["four_pass_on_chip"], order)


@_declare("five_pass_on_chip", passes.PROBABILITIES)
def five_pass_on_chip(problem: Any, config: Mapping[str, Any]) -> Run:
    """As five_pass, but a column sweep reads A or GS once, not once per feature."""
    from autotune_variants.attention import stages

    order = (*stages.A_FROM_LSE, *stages.GRADIENTS["five_pass_on_chip"])
    return staged(problem, config, GRADIENTS["five_pass_on_chip"], order)


@_declare("gs_recomputed", passes.PROBABILITIES)
def gs_recomputed(problem: Any, config: Mapping[str, Any]) -> Run:
    """A stored; GS recomputed by the passes that need it."""
    from autotune_variants.attention import stages

    order = (*stages.A_FROM_LSE, *stages.GRADIENTS["gs_recomputed"])
    return staged(problem, config, GRADIENTS["gs_recomputed"], order)


@_declare("all_recomputed")
def all_recomputed(problem: Any, config: Mapping[str, Any]) -> Run:
    """Nothing n x n stored: A and GS recomputed by the passes that need them."""
    from autotune_variants.attention import stages

    order = stages.GRADIENTS["all_recomputed"]
    return staged(problem, config, GRADIENTS["all_recomputed"], order)

"""Tuning inside a call of dispatch, for callers who ask for it with `tune_on_miss`."""

from __future__ import annotations

import logging
import sys
from typing import Any

from autotune.asking import Wish
from autotune.model.problem import Problem

log = logging.getLogger("autotune")

BUDGET = "10s"
PATIENCE = 10.0
"""Seconds to wait for another process that measures on the device."""


def may_tune(device: Any) -> bool:
    """Not while the caller captures a CUDA graph, with CuPy or with torch."""
    if device.kind != "cuda":
        return True
    from autotune.cuda.streams import capturing

    torch = sys.modules.get("torch")
    return not (capturing() or (torch and torch.cuda.is_current_stream_capturing()))


def tune_now(problem: Problem, device: Any, wish: Wish) -> bool:
    """Tune; a failure costs one warning, and the call is served without a measurement."""
    from autotune import tune

    try:
        tune(
            problem.operation,
            dims=dict(problem.sizes),
            dtype=problem.dtype,
            device=device.address,
            mode=wish.mode,
            budget=BUDGET,
            patience=PATIENCE,
            **problem.flags,
        )
    except Exception as error:  # a full disk, say: whatever it is, the call is served
        log.warning("could not tune %s: %s", problem, error)
        return False
    return True

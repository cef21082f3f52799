"""How time grows with a size, and with threads: measured in one process, beside the prediction."""

from autotune.scaling.exponents import Point, Step, steps
from autotune.scaling.sizes import varied
from autotune.scaling.sweep import (
    Curve,
    Setting,
    SweepStopped,
    Swept,
    sweep_sizes,
    sweep_threads,
)

__all__ = [
    "Curve",
    "Point",
    "Setting",
    "Step",
    "SweepStopped",
    "Swept",
    "steps",
    "sweep_sizes",
    "sweep_threads",
    "varied",
]

"""The nouns: Operation, Variant, Pass, Problem, Config, Candidate, Prediction, Published."""

from autotune.model.operation import Operation, Tensor
from autotune.model.problem import Candidate, Config, Problem
from autotune.model.published import Published
from autotune.model.traits import (
    PassPrediction,
    Prediction,
    is_deterministic,
    predict,
    workspace_bytes,
)
from autotune.model.tunable import Choice, Placement, PowerOfTwo, Range, Threads
from autotune.model.variant import Intermediate, Pass, Requirement, Unit, Variant

__all__ = [
    "Candidate",
    "Choice",
    "Config",
    "Intermediate",
    "Operation",
    "Pass",
    "PassPrediction",
    "Placement",
    "PowerOfTwo",
    "Prediction",
    "Problem",
    "Published",
    "Range",
    "Requirement",
    "Tensor",
    "Threads",
    "Unit",
    "Variant",
    "is_deterministic",
    "predict",
    "workspace_bytes",
]

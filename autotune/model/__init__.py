"""The nouns: Operation, Variant, Pass, Problem, Config, Candidate, Prediction."""

from autotune.model.operation import Operation, Tensor
from autotune.model.problem import Candidate, Config, Problem
from autotune.model.traits import Prediction, is_deterministic, predict, workspace_bytes
from autotune.model.tunable import Choice, Placement, PowerOfTwo, Range, Threads
from autotune.model.variant import Intermediate, Pass, Requirement, Variant

__all__ = [
    "Candidate",
    "Choice",
    "Config",
    "Intermediate",
    "Operation",
    "Pass",
    "Placement",
    "PowerOfTwo",
    "Prediction",
    "Problem",
    "Range",
    "Requirement",
    "Tensor",
    "Threads",
    "Variant",
    "is_deterministic",
    "predict",
    "workspace_bytes",
]

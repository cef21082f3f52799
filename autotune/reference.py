"""The reference implementation as a variant: the last answer, when nothing else can run."""

from __future__ import annotations

from typing import Any

from autotune.model.operation import Operation
from autotune.model.problem import Config, Problem
from autotune.model.variant import Run, Variant


def reference_variant(operation: Operation) -> Variant:
    """The operation's float64 reference, its result cast to the problem's dtype."""

    def build(problem: Problem, config: Config) -> Run:
        return _run(problem)

    return Variant(
        "reference", operation, build, deterministic=True, source=operation.reference
    )


def _run(problem: Problem) -> Run:
    import numpy as np

    operation = problem.operation
    count = len(operation.inputs)

    def run(*arguments: Any) -> None:
        arrays, rest = arguments[:count], arguments[count:]
        fresh = len(operation.fresh_outputs)
        by_name = dict(zip((t.name for t in operation.inputs), arrays, strict=True))
        by_name |= dict(zip((t.name for t in operation.fresh_outputs), rest[:fresh], strict=True))
        scalars = dict(zip(operation.scalars, rest[fresh:], strict=True))
        wide = [np.array(array, dtype=np.float64) for array in arrays]
        results = operation.reference(*wide, **problem.flags, **scalars)
        if not isinstance(results, tuple):
            results = (results,)
        for tensor, result in zip(operation.outputs, results, strict=True):
            by_name[tensor.name][...] = result

    return run

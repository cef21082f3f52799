"""Shorthands for measuring the plugin of good and bad variants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.model import Problem
from autotune.registry import registry
from autotune.worker import Job, Outcome, Worker

PLUGIN = Path(__file__).parent / "plugins" / "scaling.py"

MEASURED = ("ok", "disturbed")
"""A test machine need not be quiet."""


class Bench:
    """A worker with shorthands for jobs on the plugin's operations."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def key(self, operation: str = "scale", size: int = 4096, **given: Any) -> str:
        problem = Problem.of(registry.operation(operation), (size,), "float32", **given)
        return problem.key.text

    def measure(self, variant: str, operation: str = "scale", **fields: Any) -> Outcome:
        defaults = {"config": {}, "mode": "hot", "budget": 0.1, "retries": 0, "time_limit": 30.0}
        return self.worker.measure(
            Job(fields.pop("problem", self.key(operation)), variant, **{**defaults, **fields})
        )

"""Acceptance tests: is a candidate right, does it move the memory it should, is it fast."""

from autotune.accept.baseline import Baselines, Missing, Place, baselines, is_file
from autotune.accept.run import Asked, accept, with_baselines
from autotune.accept.subjects import Skipped, Subject, subjects, tuned_problems
from autotune.accept.thresholds import Limits, Thresholds, read_thresholds
from autotune.accept.verdict import BITS, TESTS, Acceptance, Check, Status, exit_code
from autotune.accept.versions import PREVIOUS, Version, labels_of, versions

__all__ = [
    "BITS",
    "PREVIOUS",
    "TESTS",
    "Acceptance",
    "Asked",
    "Baselines",
    "Check",
    "Limits",
    "Missing",
    "Place",
    "Skipped",
    "Status",
    "Subject",
    "Thresholds",
    "Version",
    "accept",
    "baselines",
    "exit_code",
    "is_file",
    "labels_of",
    "read_thresholds",
    "subjects",
    "tuned_problems",
    "versions",
    "with_baselines",
]

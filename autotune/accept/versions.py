"""Versions of a variant: its measurements by source, label, device and toolchain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.fingerprint import fingerprint
from autotune.model import Problem
from autotune.registry import registry
from autotune.trials import MEASURED
from autotune_tuning_db import ProblemKey, TrialRow

SHORT = 8
"""Digits of a fingerprint that people read and write."""


@dataclass(frozen=True, slots=True)
class Version:
    """The trials of one source of a variant on one problem, device, mode and toolchain.

    `label` is what the source was called when it was measured, if it was. `best` is the trial
    with the smallest median among those of its fastest config, None when all of them failed.
    """

    problem: ProblemKey
    device: str
    mode: str
    variant: str
    fingerprint: str
    toolchain: Mapping[str, str]
    label: str
    rows: tuple[TrialRow, ...]

    @property
    def best(self) -> TrialRow | None:
        """The fastest trial that can be used."""
        return min(usable(self.rows), key=lambda row: row.median or math.inf, default=None)

    @property
    def first(self) -> str:
        """When it was first measured."""
        return min(row.started for row in self.rows)

    @property
    def last(self) -> str:
        """When it was last measured."""
        return max(row.started for row in self.rows)


def versions(rows: Iterable[TrialRow]) -> list[Version]:
    """Trials by version, those of a variant on a problem together, oldest version first.

    What a profiler timed does not count.
    """
    kept = [row for row in rows if row.stage != "profile" and row.fingerprint]
    labels = labels_of(kept)
    groups: dict[tuple[object, ...], list[TrialRow]] = {}
    for row in kept:
        source = (row.problem, row.device, row.mode, row.variant, row.fingerprint)
        groups.setdefault((*source, tuple(sorted(row.toolchain.items()))), []).append(row)
    found = [
        Version(
            first.problem,
            first.device,
            first.mode,
            first.variant,
            first.fingerprint,
            first.toolchain,
            labels.get((first.variant, first.fingerprint), ""),
            tuple(group),
        )
        for group in groups.values()
        for first in group[:1]
    ]
    met = {problem: n for n, problem in enumerate(dict.fromkeys(row.problem for row in kept))}
    return sorted(found, key=lambda v: (met[v.problem], v.device, v.mode, v.variant, v.first))


def labels_of(rows: Iterable[TrialRow]) -> dict[tuple[str, str], str]:
    """By variant and fingerprint, the label that was given last."""
    found: dict[tuple[str, str], str] = {}
    for row in sorted(rows, key=lambda row: row.started):
        label = row.circumstances.get("label")
        if isinstance(label, str) and label:
            found[row.variant, row.fingerprint] = label
    return found


def named(rows: Sequence[TrialRow], variant: str, version: str, current: str) -> list[TrialRow]:
    """The trials of one version of a variant, by a label, `previous`, or a fingerprint's start.

    `previous` is the source that was measured last before `current` and is not that.
    """
    mine = [row for row in rows if row.variant == variant and row.fingerprint]
    if version == "previous":
        others = [row for row in mine if row.fingerprint != current and row.status in MEASURED]
        latest = max(others, key=lambda row: row.started, default=None)
        return [row for row in others if latest and row.fingerprint == latest.fingerprint]
    labelled = {sources for sources, label in labels_of(mine).items() if label == version}
    if labelled:
        return [row for row in mine if (row.variant, row.fingerprint) in labelled]
    return [row for row in mine if len(version) >= 4 and row.fingerprint.startswith(version)]


def usable(rows: Iterable[TrialRow]) -> list[TrialRow]:
    """The trials with times that can be compared."""
    return [row for row in rows if row.status in MEASURED and row.samples and row.median]


def current_source(problem: Problem, variant: str) -> str:
    """The fingerprint that a registered variant has now."""
    return fingerprint(registry.variant(problem.operation, variant))

"""Versions of a variant: its measurements by source, label, device and toolchain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.fingerprint import fingerprint
from autotune.model import Problem
from autotune.registry import registry
from autotune.trials import MEASURED
from autotune_tuning_db import ProblemKey, TrialRow

SHORT = 8
"""Digits of a fingerprint that people read and write."""

PREVIOUS = "previous"
"""Stands for the version before the present one, so nothing can be labelled so."""

Labels = Mapping[tuple[str, str], Mapping[str, str]]
"""By variant and fingerprint: every label it ever had and when that was last given."""


@dataclass(frozen=True, slots=True)
class Version:
    """The trials of one source of a variant on one problem, device, mode and toolchain.

    `labels` are what the source was ever called when it was measured, the latest last. `best` is
    the trial with the smallest median among those of its fastest config, None when all failed.
    """

    problem: ProblemKey
    device: str
    mode: str
    variant: str
    fingerprint: str
    toolchain: Mapping[str, str]
    labels: tuple[str, ...]
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


def versions(rows: Iterable[TrialRow], labels: Labels | None = None) -> list[Version]:
    """Trials by version, those of a variant on a problem together, oldest version first.

    What a profiler timed does not count. `labels` are those of all trials, where `rows` are but
    some of them.
    """
    kept = [row for row in rows if row.stage != "profile" and row.fingerprint]
    labels = labels_of(kept) if labels is None else labels
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
            tuple(labels.get((first.variant, first.fingerprint), ())),
            tuple(group),
        )
        for group in groups.values()
        for first in group[:1]
    ]
    met = {problem: n for n, problem in enumerate(dict.fromkeys(row.problem for row in kept))}
    return sorted(found, key=lambda v: (met[v.problem], v.device, v.mode, v.variant, v.first))


def labels_of(rows: Iterable[TrialRow]) -> Labels:
    """The labels of all sources, those of each in the order in which they were last given."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in sorted(rows, key=lambda row: row.started):
        label = row.circumstances.get("label")
        if isinstance(label, str) and label:
            mine = found.setdefault((row.variant, row.fingerprint), {})
            mine.pop(label, None)
            mine[label] = row.started
    return found


def named(
    rows: Iterable[TrialRow], labels: Labels, variant: str, version: str, current: str
) -> list[TrialRow]:
    """The trials of one version of a variant, by a label, `previous`, or a fingerprint's start.

    `previous` is the source that was measured last before `current` and is not that. Of several
    sources with the label, it is the one that had it last and is not `current`: a version that is
    labelled like the one before it must not become its own baseline.
    """
    mine = [row for row in rows if row.variant == variant and row.fingerprint]
    measured = [row for row in mine if row.status in MEASURED]
    if version == PREVIOUS:
        others = [row for row in measured if row.fingerprint != current]
        latest = max(others, key=lambda row: row.started, default=None)
        return [row for row in others if latest and row.fingerprint == latest.fingerprint]
    given = {
        source: moments[version]
        for (name, source), moments in labels.items()
        if name == variant and version in moments
    }
    if given:
        candidates = {row.fingerprint for row in measured} & given.keys()
        chosen = max(candidates - {current} or candidates, key=given.__getitem__, default=None)
        return [row for row in measured if row.fingerprint == chosen]
    return [row for row in mine if len(version) >= 4 and row.fingerprint.startswith(version)]


def usable(rows: Iterable[TrialRow]) -> list[TrialRow]:
    """The trials with times that can be compared."""
    return [row for row in rows if row.status in MEASURED and row.samples and row.median]


def current_source(problem: Problem, variant: str) -> str:
    """The fingerprint that a registered variant has now."""
    return fingerprint(registry.variant(problem.operation, variant))

"""What is known of a problem's candidates, from earlier campaigns and this one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autotune.campaign.beside import Beside
from autotune.campaign.events import MEASURED, Failure
from autotune.campaign.records import ran_out_of_memory
from autotune.campaign.seen import Named, Seen
from autotune.in_turn import told_in_turn
from autotune.model.problem import Candidate, Config
from autotune.model.traits import is_deterministic
from autotune.model.variant import Variant
from autotune.search import Space
from autotune_policies import Choice
from autotune_tuning_db import TrialRow

_LONG_SECONDS = 0.02
"""A call that takes longer sees a machine's fast and slow phases both."""

_MOST_BYTES = 64 << 20
"""Of temporaries that a measuring process may keep beside those of others."""

_FASTER = 1.3
"""Times faster that another has to be to take the reference's place."""


@dataclass(slots=True)
class Evidence:
    """The latest trial of every candidate whose source and declaration are still the same.

    Trials under another toolchain tell the search what it need not try again, but no policy rests
    on them. `toolchain` is what the worker has loaded, as far as is known. `doubted` are those
    that other programs disturbed in an earlier campaign.
    """

    variants: Mapping[str, Variant]
    toolchain: Mapping[str, str]
    rows: dict[Candidate, TrialRow] = field(default_factory=dict)
    doubted: set[Candidate] = field(default_factory=set)

    def add(self, row: TrialRow) -> None:
        """Take a trial in; one under this toolchain replaces one under another."""
        candidate = candidate_of(row)
        old = self.rows.get(candidate)
        if old is None or self.current(row) or not self.current(old):
            self.rows[candidate] = row
            self.doubted.discard(candidate)

    def current(self, row: TrialRow) -> bool:
        """Whether the row was measured with what is loaded now."""
        return dict(row.toolchain) == dict(self.toolchain)

    def choices(self) -> list[Choice]:
        """What was measured with the toolchain of now, fastest first, by `rank_of`."""
        found = [
            choice_of(row, self.variants[row.variant])
            for row in self.rows.values()
            if row.status in MEASURED and self.current(row)
        ]
        return sorted(found, key=lambda choice: choice.seconds)

    def seen(self) -> dict[Named, Seen]:
        """Of every choice, what its times are held to."""
        return {
            choice_of(row, self.variants[row.variant]).candidate: Seen(
                _fastest(row), row.high or 0.0, disturbed=bool(row.reason)
            )
            for row in self.rows.values()
            if row.status in MEASURED and self.current(row)
        }

    def anchor(self) -> Choice | None:
        """The fastest candidate with a time of its own, to time disturbed ones beside."""
        own = [
            row
            for row in self.rows.values()
            if row.status in MEASURED and self.current(row) and Beside.of(row) is None
        ]
        row = min(own, key=lambda each: rank_of(each) or math.inf, default=None)
        return choice_of(row, self.variants[row.variant]) if row is not None else None

    def reference(self) -> Choice | None:
        """The candidate to take samples in turn with: the first that will do, or one much faster.

        Not one that is a little faster: of many unsure ratios the smallest would be taken, again
        and again.
        """
        found, best = None, math.inf
        for row in self.rows.values():
            seconds = rank_of(row)
            if seconds is None or row.status != "ok" or not self.current(row):
                continue
            small = seconds <= _LONG_SECONDS and (row.workspace_bytes or 0) <= _MOST_BYTES
            if small and _FASTER * seconds < best:
                found, best = row, seconds
        return choice_of(found, self.variants[found.variant]) if found is not None else None

    def outdated(self) -> list[Candidate]:
        """Per variant of which no time holds any more: its fastest.

        It was measured under another toolchain, or disturbed in an earlier campaign: a winner must
        not be called clear against times of a busier day.
        """
        current = {
            row.variant
            for candidate, row in self.rows.items()
            if self.current(row) and candidate not in self.doubted
        }
        best: dict[str, tuple[float, Candidate]] = {}
        for candidate, row in self.rows.items():
            if row.variant not in current:
                entry = (rank_of(row) or math.inf, candidate)
                best[row.variant] = min(best.get(row.variant, entry), entry, key=lambda e: e[0])
        return [candidate for _, candidate in sorted(best.values(), key=lambda entry: entry[0])]

    def failures(self) -> tuple[Failure, ...]:
        """Every candidate without a time."""
        return tuple(
            Failure(candidate, row.status, row.reason)  # type: ignore[arg-type]
            for candidate, row in self.rows.items()
            if row.status not in MEASURED
        )


def gather(
    rows: Iterable[TrialRow],
    space: Space,
    variants: Mapping[str, Variant],
    fingerprints: Mapping[str, str],
    toolchain: Mapping[str, str],
) -> Evidence:
    """What earlier campaigns measured that still holds for this space and these sources.

    A timeout does not count, since the machine may have been busy then, nor does memory that ran
    out, since others may have had it, nor what was missing here. When nothing at all could be
    measured, no failure counts: what was broken around the candidates may have been repaired.
    """
    evidence = Evidence(variants, toolchain)
    for row in rows:
        same_source = fingerprints.get(row.variant) == row.fingerprint
        counts = row.stage == "search" or row.status not in MEASURED
        if counts and not _passing(row) and same_source and candidate_of(row) in space:
            evidence.add(row)
    if not any(row.status in MEASURED for row in evidence.rows.values()):
        evidence.rows.clear()
    evidence.doubted = {
        candidate
        for candidate, row in evidence.rows.items()
        if row.status in MEASURED and row.reason
    }
    return evidence


def _passing(row: TrialRow) -> bool:
    """Whether a failure may be over by now."""
    return row.status in ("timeout", "unavailable") or ran_out_of_memory(row)


def candidate_of(row: TrialRow) -> Candidate:
    """Variant and config of a row."""
    return Candidate(row.variant, Config(dict(row.config)))


def choice_of(row: TrialRow, variant: Variant) -> Choice:
    """A measured trial as it is compared with others, by `rank_of`.

    A disturbance only ever adds time, so the interval of a disturbed one reaches down to its
    fastest sample; but what one took in turn with another, the anchor for instance, counts more.
    """
    median = row.median or math.nan
    low, high, samples = row.low or median, row.high or median, len(row.samples)
    told = told_in_turn(row)
    if told is not None:
        median, low, high = told
    elif row.status == "disturbed":
        low = min(low, *row.samples)
    beside = Beside.of(row)
    if beside is not None and beside.seconds < median:
        median, low, high, samples = beside.seconds, beside.low, beside.high, beside.rounds
    return Choice(
        variant=row.variant,
        config=tuple(row.config.items()),
        seconds=median,
        low=min(low, median),
        high=max(high, median),
        workspace_bytes=row.workspace_bytes or 0,
        error=row.error or 0.0,
        deterministic=is_deterministic(variant),
        fingerprint=row.fingerprint,
        samples=max(samples, 1),
    )


def seconds_of(row: TrialRow) -> float | None:
    """The time of a trial, None for one that failed; no less than its fastest sample."""
    rank = rank_of(row)
    return None if rank is None else max(rank, _fastest(row))


def _fastest(row: TrialRow) -> float:
    """The shortest time that was seen of a candidate, by itself and beside the anchor."""
    beside = Beside.of(row)
    own = min(row.samples, default=0.0)
    return own if beside is None else min(own, beside.fastest)


def rank_of(row: TrialRow) -> float | None:
    """What trials are put in order by, None for one that failed: not always a time.

    It is the time in turn with another where there is one. On a machine that is slower for a while,
    without a trace, that is less than any sample.
    """
    if row.status not in MEASURED or row.median is None:
        return None
    told, beside = told_in_turn(row), Beside.of(row)
    median = told[0] if told is not None else row.median
    return min(median, beside.seconds) if beside is not None else median

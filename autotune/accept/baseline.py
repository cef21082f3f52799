"""What performance is compared with: another variant, an earlier version, an exported result."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.accept.versions import PREVIOUS, current_source, labels_of, named, usable
from autotune.candidates import runnable_candidate
from autotune.device import Device
from autotune.errors import UserError
from autotune.model import Candidate, Problem
from autotune.registry import registry
from autotune.store import open_tuning_db
from autotune_policies import Policy, row_problem
from autotune_tuning_db import Store, TrialRow, open_store

ENOUGH = 7
"""Samples whose extremes hold the median with 97.5%: fewer of a baseline decide nothing."""

_SOURCE = re.compile(r"[0-9a-f]{4,16}\Z")


@dataclass(frozen=True, slots=True)
class Stored:
    """Samples of an earlier measurement in the order taken; `note` says how it differs from now."""

    name: str
    samples: tuple[float, ...]
    config: str
    disturbed: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing to compare with, and why."""

    reason: str


Baseline = Candidate | Stored | Missing
"""A candidate to be timed in turn with, samples from before, or neither."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how the measuring is done now, and under which label."""

    device: Device
    mode: str
    toolchain: dict[str, str]
    label: str = ""


class Baselines:
    """Finds the baseline of each candidate under the one name that was given.

    A name is, in this order: a file that `autotune export` wrote, a variant of the operation, or
    a version of the candidate's own variant: `previous`, a label, or the start of a fingerprint.
    """

    def __init__(
        self,
        name: str,
        place: Place,
        store: Store,
        *,
        force: bool = False,
        unread: Sequence[str] = (),
    ) -> None:
        self.name, self.place, self.force, self._unread = name, place, force, unread
        self._store, self._is_file = store, is_file(name)
        self._read: dict[str, list[TrialRow]] = {}

    def find(self, problem: Problem, candidate: Candidate, *, served: bool) -> Baseline:
        """What to compare a candidate with; `served` ones with what was served in a file.

        Raises UserError when the name means nothing for the operation, or when the measurement is
        of another device or mode, unless forced.
        """
        if self._is_file:
            rows, variant = self._from_file(problem, candidate, served=served)
            return self._stored(rows, Path(self.name).name, candidate, same=variant)
        if self.name in {each.name for each in registry.variants(problem.operation)}:
            return self._variant(problem)
        rows = self._of_version(problem, candidate)
        if not rows and self.name == PREVIOUS:
            return Missing(
                f"there is no earlier version of {candidate.variant} with times of this problem"
            )
        if not rows and not self._known_version(problem):
            if self.name == self.place.label:
                return Missing(f"nothing had the label {self.name} before")
            raise UserError(
                f"unknown baseline {self.name!r}; name a variant of {problem.operation.name}, a "
                f"version that `autotune history {problem.operation.name}` lists, `previous`, or "
                "a file that `autotune export` wrote."
            )
        what = f"{candidate.variant} {self.name}"
        return self._stored(rows, what, candidate, same=candidate.variant)

    def _variant(self, problem: Problem) -> Baseline:
        """The variant so called; of many problems it need not take every one."""
        device = self.place.device
        candidate, why = runnable_candidate(problem, device, self.name, self.place.mode)
        return candidate or Missing(f"{self.name} cannot run this on {device.label}: {why}")

    def _of_version(self, problem: Problem, candidate: Candidate) -> list[TrialRow]:
        """Trials of the problem, those of this device and mode if there are any.

        A label that was given on another problem of the operation names the same source here.
        """
        every = self._of_operation(problem)
        labels, current = labels_of(every), current_source(problem, candidate.variant)
        rows = [row for row in every if row.problem == problem.key]
        here = [row for row in rows if not self._differences(row)]
        return named(here, labels, candidate.variant, self.name, current) or named(
            rows, labels, candidate.variant, self.name, current
        )

    def _known_version(self, problem: Problem) -> bool:
        """Whether any variant on any problem of the operation has such a version."""
        return any(
            row.circumstances.get("label") == self.name
            or (_SOURCE.match(self.name) and row.fingerprint.startswith(self.name))
            for row in self._of_operation(problem)
        )

    def _of_operation(self, problem: Problem) -> list[TrialRow]:
        """What a profiler timed is no measurement of a version."""
        name = problem.operation.name
        if name not in self._read:
            rows = self._store.trials(operation=name)
            self._read[name] = [row for row in rows if row.stage != "profile"]
        return self._read[name]

    def _from_file(
        self, problem: Problem, candidate: Candidate, *, served: bool
    ) -> tuple[list[TrialRow], str]:
        """The trials of the same variant, or of what the file's policy serves."""
        rows = [row for row in self._of_operation(problem) if row.problem == problem.key]
        winner = self._winner(problem) if served else None
        if winner is not None:
            name, config = winner
            chosen = [r for r in rows if r.variant == name and dict(r.config) == config]
            return chosen, name
        return [row for row in rows if row.variant == candidate.variant], candidate.variant

    def _winner(self, problem: Problem) -> tuple[str, dict[str, object]] | None:
        found = [
            Policy.from_row(row)
            for row in self._store.policies(operation=problem.operation.name)
            if row.problem == problem.key
        ]
        device = self.place.device.identity
        found.sort(key=lambda policy: (policy.device, policy.mode) != (device, self.place.mode))
        return (found[0].winner.variant, dict(found[0].winner.config)) if found else None

    def _stored(
        self, rows: Sequence[TrialRow], name: str, candidate: Candidate, *, same: str
    ) -> Baseline:
        """The latest trial of the candidate's config, or of the fastest one measured then.

        Where it has too few samples for an interval, those before it of the same source count too.
        """
        good = usable(rows)
        here = [row for row in good if not self._differences(row)] or good
        equal = [
            row
            for row in here
            if same == candidate.variant and dict(row.config) == dict(candidate.config)
        ]
        fastest = min(here, key=lambda row: row.median or math.inf, default=None)
        row = max(equal, key=lambda row: row.started, default=fastest)
        if row is None:
            lost = f" that can be read; {self._unread[0]}" if self._unread else ""
            return Missing(f"{name} has no measurement of this problem{lost}")
        differs = self._differences(row)
        if differs and not self.force:
            raise UserError(
                f"the baseline {self.name} was measured with {differs}; measure it here and so, "
                "or compare all the same with --force."
            )
        notes = [differs, self._toolchain_note(row), "" if equal else _with_config(row)]
        return Stored(
            name,
            _samples(row, here),
            str(dict(row.config)),
            row.status == "disturbed",
            "; ".join(filter(None, notes)),
        )

    def _differences(self, row: TrialRow) -> str:
        """The fields that forbid a comparison, with both values; "" when there is none."""
        here = {"device": self.place.device.identity, "mode": self.place.mode}
        then = {"device": row.device, "mode": row.mode}
        return ", ".join(
            f"{name} {then[name]} (here {here[name]})" for name in here if then[name] != here[name]
        )

    def _toolchain_note(self, row: TrialRow) -> str:
        now = self.place.toolchain
        changed = [n for n in now if n in row.toolchain and row.toolchain[n] != now[n]]
        return ", ".join(f"{n} {row.toolchain[n]} then, {now[n]} now" for n in changed)


def _samples(row: TrialRow, rows: Sequence[TrialRow]) -> tuple[float, ...]:
    """Of a trial and, until they are enough, of those before it of the same source and config."""
    alike = [each for each in rows if _same(each, row) and each.started < row.started]
    samples = row.samples
    for each in sorted(alike, key=lambda each: each.started, reverse=True):
        if len(samples) >= ENOUGH:
            break
        samples = each.samples + samples
    return samples


def _same(one: TrialRow, other: TrialRow) -> bool:
    """Whether two trials are of one source, config and toolchain, and both or neither disturbed."""
    fields = ("variant", "fingerprint", "config", "toolchain", "device", "mode", "status")
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def _with_config(row: TrialRow) -> str:
    values = " ".join(f"{name}={value}" for name, value in row.config.items())
    return f"the baseline is {row.variant} [{values}]" if values else f"it is {row.variant}"


def is_file(name: str) -> bool:
    """Whether a baseline of that name is an exported file."""
    return name.endswith(".json") or Path(name).is_file()


@contextmanager
def baselines(name: str, place: Place, *, force: bool = False) -> Iterator[Baselines]:
    """The baselines under a name: from a file as it stands, else from the tuning database.

    Raises UserError for a file that is no export.
    """
    if not is_file(name):
        with open_tuning_db() as store:
            yield Baselines(name, place, store, force=force)
        return
    from autotune_tuning_db import ExchangeError

    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(Path(folder) / "baseline.db") as store,
    ):
        try:
            report = store.import_file(name, check=row_problem)
        except ExchangeError as error:
            raise UserError(str(error)) from None
        yield Baselines(name, place, store, force=force, unread=report.rejected)

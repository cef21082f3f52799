"""Carries a store to another machine: everything in one JSON file, and back without harm."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from autotune_tuning_db import queries
from autotune_tuning_db.files import write_whole
from autotune_tuning_db.keys import ProblemKey
from autotune_tuning_db.rows import (
    CampaignRow,
    DeviceRow,
    PinRow,
    PolicyRow,
    TrialRow,
    read_moment,
)

FORMAT = "onf-autotune-export"
VERSION = 1
SECTIONS = ("devices", "campaigns", "trials", "policies", "pins")

PolicyCheck = Callable[[PolicyRow], str | None]
"""Says what is wrong with a policy's payload, None when it can be served."""


class ExchangeError(ValueError):
    """An export that cannot be written, or a file that is none; the sentence names it and why."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did: counts by section, one reason for each rejected entry.

    `foreign` counts the added policies of devices that are not on this machine.
    """

    added: Mapping[str, int]
    skipped: Mapping[str, int]
    rejected: tuple[str, ...]
    foreign: Mapping[str, int]


def export_document(db: Database, bad: list[str]) -> dict[str, Any]:
    """The whole store as plain JSON values."""
    campaigns = queries.campaigns(db, bad)
    uid_of = {campaign.id: campaign.uid for campaign in campaigns}
    trials = queries.trials(db, {}, None, bad)
    return {
        "format": FORMAT,
        "version": VERSION,
        "devices": [_plain(row) for row in queries.devices(db, bad)],
        "campaigns": [_plain(row) for row in campaigns],
        "trials": [_plain(row) | {"campaign": uid_of.get(row.campaign, "")} for row in trials],
        "policies": [_plain(row) for row in queries.policies(db, {}, bad, history=False)],
        "pins": [_plain(row) for row in queries.pins(db, bad)],
    }


def write_document(document: Mapping[str, Any], target: Path) -> dict[str, int]:
    """Writes the file, whole or not at all; the number of rows of each kind."""
    try:
        write_whole(json.dumps(document, allow_nan=False, indent=1) + "\n", target)
    except OSError as error:
        raise ExchangeError(f"Cannot write {target}: {error.strerror or error}.") from None
    return {section: len(document[section]) for section in SECTIONS}


def read_document(file: Path) -> dict[str, Any]:
    """The content of an exported file, checked as a whole; its entries are checked on import."""
    try:
        document = json.loads(file.read_bytes(), parse_constant=_no_constant)
    except OSError as error:
        raise ExchangeError(f"Cannot read {file}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise ExchangeError(
            f"{file} is not a complete export ({error}); export it again and copy the whole file."
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ExchangeError(f"{file} was not written by `autotune export`.")
    if document.get("version") != VERSION:
        raise ExchangeError(
            f"{file} has export version {document.get('version')!r}, this program reads "
            f"{VERSION}; use the same version of onf-autotune on both machines."
        )
    if not all(isinstance(document.get(section), list) for section in SECTIONS):
        raise ExchangeError(f"{file} is not a complete export; it lacks a section.")
    return document


def import_document(
    db: Database,
    document: Mapping[str, Any],
    *,
    source: str,
    local_devices: Collection[str],
    check: PolicyCheck | None,
) -> ImportReport:
    """Adds what is new; runs inside the caller's one transaction."""
    tally = _Tally()
    _import_devices(db, tally.entries(document, "devices", DeviceRow), tally)
    _import_campaigns(db, tally.entries(document, "campaigns", CampaignRow), tally)
    _import_trials(db, tally.entries(document, "trials", TrialRow), tally, source)
    for policy in tally.entries(document, "policies", PolicyRow):
        reason = check(policy) if check else None
        if reason:
            tally.reject("policies", f"{policy.problem} on {policy.device}: {reason}")
        elif tally.count("policies", is_new=_is_newer(db, policy)):
            queries.add_policy(db, dataclasses.replace(policy, source=policy.source or source))
            if policy.device not in local_devices:
                tally.foreign[policy.device] += 1
    _import_pins(db, tally.entries(document, "pins", PinRow), tally)
    return ImportReport(
        dict(tally.added), dict(tally.skipped), tuple(tally.rejected), dict(tally.foreign)
    )


@dataclass(slots=True)
class _Tally:
    """Counts while an import runs."""

    added: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    foreign: Counter[str] = field(default_factory=Counter)

    def entries(self, document: Mapping[str, Any], section: str, kind: type[Any]) -> Iterator[Any]:
        """The entries of a section that are rows; the others are rejected with their reason."""
        for number, entry in enumerate(document[section], 1):
            try:
                row = _row(kind, entry)
            except queries.UNREADABLE as error:
                self.reject(section, f"entry {number}: {error}")
            else:
                yield row

    def reject(self, section: str, reason: str) -> None:
        self.rejected.append(f"{section}, {reason}")

    def count(self, section: str, *, is_new: bool) -> bool:
        (self.added if is_new else self.skipped)[section] += 1
        return is_new


def _import_devices(db: Database, rows: Iterator[DeviceRow], tally: _Tally) -> None:
    here = {row.identity for row in queries.devices(db, [])}
    for row in rows:
        if tally.count("devices", is_new=row.identity not in here):
            queries.put_device(db, row)


def _import_campaigns(db: Database, rows: Iterator[CampaignRow], tally: _Tally) -> None:
    here = queries.uids(db, "campaigns")
    for row in rows:
        if tally.count("campaigns", is_new=row.uid not in here):
            here[row.uid] = queries.add_campaign(db, row)


def _import_trials(db: Database, rows: Iterator[TrialRow], tally: _Tally, source: str) -> None:
    campaigns, here = queries.uids(db, "campaigns"), queries.uids(db, "trials")
    for row in rows:
        if tally.count("trials", is_new=row.uid not in here):
            campaign = campaigns.get(str(row.campaign), 0)
            kept = dataclasses.replace(row, campaign=campaign, source=row.source or source)
            here[row.uid] = queries.add_trial(db, kept)


def _import_pins(db: Database, rows: Iterator[PinRow], tally: _Tally) -> None:
    here = {(row.operation, row.problem, row.device) for row in queries.pins(db, [])}
    for row in rows:
        if tally.count("pins", is_new=(row.operation, row.problem, row.device) not in here):
            queries.put_pin(db, row)


def _is_newer(db: Database, policy: PolicyRow) -> bool:
    where = {"problem": policy.problem.text, "device": policy.device, "mode": policy.mode}
    here = queries.policies(db, where, [], history=False)
    return not here or read_moment(here[0].created) < read_moment(policy.created)


def _plain(row: Any) -> dict[str, Any]:
    values = {item.name: getattr(row, item.name) for item in dataclasses.fields(row)}
    values.pop("id", None)
    for name, value in values.items():
        if isinstance(value, ProblemKey):
            values[name] = value.text
        elif isinstance(value, float) and not math.isfinite(value):
            values[name] = None  # the error of an output full of NaN; JSON has no such number
    return values


def _row(kind: type[Any], entry: Any) -> Any:
    """Builds a row from the outside world: every field there, none too many, each of its type."""
    if not isinstance(entry, dict):
        raise ValueError("it is not an object")
    values = dict(entry)
    names = {item.name for item in dataclasses.fields(kind)} - {"id"}
    if set(values) != names:
        odd = ", ".join(sorted(set(values) ^ names))
        raise ValueError(f"missing or unknown fields: {odd}")
    for name, value in values.items():
        _check(name, value)
    if values.get("problem") is not None:
        values["problem"] = ProblemKey.parse(values["problem"])
    elif kind in (TrialRow, PolicyRow):
        raise ValueError("it has no problem")
    if kind in (TrialRow, CampaignRow) and not values["uid"]:
        raise ValueError("it has no uid")
    for name in values.keys() & {*_NUMBERS, "wall_seconds"}:
        if values[name] is not None:
            values[name] = float(values[name])  # a whole number may be too large for a column
    if "samples" in values:
        values["samples"] = tuple(float(sample) for sample in values["samples"])
    return kind(**values, **({"id": 0} if kind is CampaignRow else {}))


_MAPPINGS = frozenset({"facts", "settings", "config", "toolchain", "circumstances", "payload"})
_NUMBERS = frozenset(
    ("median", "low", "high", "compile_seconds", "first_call_seconds", "error", "error_bound")
)
_OPTIONAL = _NUMBERS | {"workspace_bytes", "ended", "config", "problem"}


def _check(name: str, value: Any) -> None:
    if value is None and name in _OPTIONAL:
        return
    if name in _MAPPINGS:
        fits = isinstance(value, dict) and _is_clean(value)
    elif name in _NUMBERS or name == "wall_seconds":
        fits = _is_number(value)
    elif name == "workspace_bytes":
        fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    elif name == "samples":
        fits = isinstance(value, list) and all(map(_is_number, value))
    else:
        fits = isinstance(value, str) and value.isprintable()
    if not fits:
        raise ValueError(f"{name} is {str(value)[:40]!r}")


def _is_clean(value: Any) -> bool:
    """Whether every text in a JSON value can be shown on a terminal and written as UTF-8."""
    if isinstance(value, str):
        return all(letter.isprintable() or letter in "\n\t" for letter in value)
    if isinstance(value, dict):
        return all(_is_clean(name) and _is_clean(inner) for name, inner in value.items())
    return all(map(_is_clean, value)) if isinstance(value, list) else True


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(float(value))
    )


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")

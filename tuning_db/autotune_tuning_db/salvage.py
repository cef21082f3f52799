"""Reads what can still be read of a damaged store, row by row, and puts it into a sound one."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

from sqlite_utils import Database

from autotune_tuning_db import queries
from autotune_tuning_db.rows import (
    CampaignRow,
    CeilingsRow,
    DeviceRow,
    PinRow,
    PolicyRow,
    TrialRow,
    read_moment,
)

Row = TypeVar("Row")

_PROBED = 500_000
"""The most row numbers that are tried one by one: some seconds."""

_DAMAGE = (sqlite3.Error, UnicodeDecodeError, OverflowError)


@dataclass(slots=True)
class Salvage:
    """Rows by kind; `unreadable` counts, by table, those that were there and cannot be read.

    `tables` is how many of a store's tables were found.
    """

    devices: list[DeviceRow] = field(default_factory=list)
    campaigns: list[CampaignRow] = field(default_factory=list)
    trials: list[TrialRow] = field(default_factory=list)
    policies: list[PolicyRow] = field(default_factory=list)
    pins: list[PinRow] = field(default_factory=list)
    ceilings: list[CeilingsRow] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)
    tables: int = 0


def read_rows(db: Database) -> Salvage:
    """Everything that can be read of a store, whatever its state; changes nothing."""
    found = Salvage()
    # With it, one damaged line of the schema does not hide the other tables.
    list(_attempt(db, "PRAGMA writable_schema = ON"))
    for table, build in queries.BUILDERS.items():
        rows: list[Any] = getattr(found, table)
        columns = [str(row[1]) for row in _attempt(db, f"PRAGMA table_info({table})")]
        if not columns:
            continue
        found.tables += 1
        records, found.unreadable[table] = _records(db, table, columns)
        for record in records:
            try:
                rows.append(build(record))
            except queries.UNREADABLE:
                found.unreadable[table] += 1
    return found


def add_rows(db: Database, found: Salvage) -> Counter[str]:
    """Adds what is not there yet, inside the caller's transaction; how many rows of each table.

    A row keeps its uid, and with it its identity; numbers within the file are given anew. A
    policy that is here already stays in force unless the other one is newer.
    """
    added: Counter[str] = Counter()
    for device in _fresh(found.devices, attrgetter("identity"), queries.devices(db, [])):
        queries.put_device(db, device)
        added["devices"] += 1
    for campaign in _fresh(found.campaigns, attrgetter("uid"), queries.campaigns(db, [])):
        queries.add_campaign(db, campaign)
        added["campaigns"] += 1
    numbers = queries.uids(db, "campaigns")
    uid_of = {row.id: row.uid for row in found.campaigns}
    for trial in _fresh(found.trials, attrgetter("uid"), queries.trials(db, {}, None, [])):
        campaign_here = numbers.get(uid_of.get(trial.campaign, ""), 0)
        queries.add_trial(db, replace(trial, campaign=campaign_here))
        added["trials"] += 1
    latest = {_place(row): row for row in queries.policies(db, {}, [], history=False)}
    for policy in found.policies:
        here = latest.get(_place(policy))
        if here is None or read_moment(policy.created) > read_moment(here.created):
            queries.add_policy(db, policy)
            added["policies"] += 1
    for pin in _fresh(found.pins, _scope, queries.pins(db, [])):
        queries.put_pin(db, pin)
        added["pins"] += 1
    for rates in found.ceilings:
        if queries.ceilings(db, rates.device, []) is None:
            queries.put_ceilings(db, rates)
            added["ceilings"] += 1
    return added


def _records(db: Database, table: str, columns: list[str]) -> tuple[list[Mapping[str, Any]], int]:
    """What can be read of a table, and how many rows were there and cannot be.

    From the first row on and from the last one back as far as the file can be read; then, one by
    one, every number that an index knows or that lies between two others. A damaged page may claim
    any number for a row: what it says is no end of the table.
    """
    read: dict[int, Mapping[str, Any]] = {}
    lost: set[int] = set()

    def keep(rest: str, *values: int) -> bool:
        wanted = f"SELECT rowid, {', '.join(columns)} FROM {table} {rest}"
        try:
            for number, *record in db.execute(wanted, values):
                read[number] = dict(zip(columns, record, strict=True))
        except _DAMAGE:
            return False
        return True

    if not keep("ORDER BY rowid"):
        keep("ORDER BY rowid DESC")
        listed = _numbers_in_indexes(db, table)
        for number in islice(_gaps(sorted(listed | read.keys())), _PROBED):
            if number not in read and not keep("WHERE rowid = ?", number):
                lost.add(number)
        lost = (lost | listed) - read.keys()
    return [read[number] for number in sorted(read)], len(lost)


def _numbers_in_indexes(db: Database, table: str) -> set[int]:
    """The numbers of a table's rows as its indexes list them."""
    found: set[int] = set()
    for _, index, *_ in list(_attempt(db, f"PRAGMA index_list({table})")):
        query = f"SELECT rowid FROM {table} INDEXED BY {index} ORDER BY "
        names = [str(row[2]) for row in _attempt(db, f"PRAGMA index_info({index})")]
        for order in ("", " DESC"):
            ordered = ", ".join(f"{name}{order}" for name in names)
            found |= {int(number) for (number,) in _attempt(db, query + ordered)}
    return found


def _gaps(numbers: list[int]) -> Iterator[int]:
    """From the first to the last of them, all there is; nothing for none."""
    for before, after in zip([0, *numbers], numbers, strict=False):
        yield from range(before + 1, after + 1)


def _attempt(db: Database, statement: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a statement, as far as the file can be read."""
    try:
        yield from db.execute(statement)
    except _DAMAGE:
        return


def _fresh(
    rows: Iterable[Row], name: Callable[[Any], Hashable], here: Iterable[Row]
) -> Iterator[Row]:
    """The rows whose name is not here yet, each once."""
    known = {name(row) for row in here}
    for row in rows:
        if name(row) not in known:
            known.add(name(row))
            yield row


def _place(row: PolicyRow) -> tuple[str, str, str]:
    return row.problem.text, row.device, row.mode


def _scope(row: PinRow) -> tuple[str, str, str]:
    return row.operation, row.problem.text if row.problem else "", row.device

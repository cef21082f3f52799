"""The schema, as the sequence of migrations that leads to it; only ever append to it."""

from __future__ import annotations

import time

from sqlite_utils import Database
from sqlite_utils.db import Table
from sqlite_utils.migrations import Migrations

MIGRATIONS = Migrations("autotune_tuning_db")

_KEY = {
    "problem": str,
    "operation": str,
    "dims": str,
    "dtype": str,
    "flags": str,
    "layout": str,
    "device": str,
    "mode": str,
}

_TRIAL = {
    "id": int,
    "uid": str,
    "campaign": int,
    **_KEY,
    "stage": str,
    "variant": str,
    "fingerprint": str,
    "config": str,
    "status": str,
    "reason": str,
    "samples": bytes,
    "median": float,
    "low": float,
    "high": float,
    "compile_seconds": float,
    "first_call_seconds": float,
    "error": float,
    "error_bound": float,
    "workspace_bytes": int,
    "toolchain": str,
    "circumstances": str,
    "started": str,
    "wall_seconds": float,
    "source": str,
}


@MIGRATIONS(name="0001_first_schema")
def first_schema(db: Database) -> None:
    """Devices, campaigns, trials, policies with their history, pins, and the generation."""
    _devices_and_campaigns(db)
    trials = _create(db, "trials", _TRIAL, not_null={*_KEY, "uid", "variant", "status"})
    trials.create_index(["uid"], unique=True)
    trials.create_index(["problem", "device", "mode"])
    policy = {"id": int, **_KEY, "created": str, "payload": str, "source": str}
    policies = _create(db, "policies", policy, not_null=set(policy) - {"id"})
    policies.create_index(["problem", "device", "mode"])
    pin = {"id": int, "operation": str, "problem": str, "device": str}
    pins = _create(db, "pins", {**pin, "variant": str, "config": str}, not_null=set(pin) - {"id"})
    pins.create_index(["operation", "problem", "device"], unique=True)
    _generation(db, watched=("policies", "pins"))


def _devices_and_campaigns(db: Database) -> None:
    device = {"identity": str, "kind": str, "family": str, "label": str, "facts": str}
    db.table("devices").create(device, pk="identity", not_null=set(device) - {"identity"})
    campaign = {"id": int, "uid": str, "device": str, "started": str, "settings": str}
    campaigns = _create(db, "campaigns", {**campaign, "ended": str}, not_null={"uid", "device"})
    campaigns.create_index(["uid"], unique=True)


def _generation(db: Database, *, watched: tuple[str, ...]) -> None:
    """A number that the database itself moves on whenever a policy or pin changes.

    It starts from the clock, so that a store which replaced another does not repeat its numbers.
    """
    table = db.table("generation")
    table.create({"id": int, "value": int}, pk="id", not_null={"value"})
    table.insert({"id": 1, "value": time.time_ns() // 1000})
    for name in watched:
        for event in ("INSERT", "UPDATE", "DELETE"):
            db.execute(
                f"CREATE TRIGGER {name}_{event.lower()} AFTER {event} ON {name} "
                "BEGIN UPDATE generation SET value = value + 1; END"
            )


def _create(db: Database, name: str, columns: dict[str, type], *, not_null: set[str]) -> Table:
    return db.table(name).create(columns, pk="id", not_null=not_null)


@MIGRATIONS(name="0002_ceilings")
def ceilings(db: Database) -> None:
    """The rates last measured on each device."""
    columns = {"device": str, "measured": str, "toolchain": str, "rates": str}
    db.table("ceilings").create(columns, pk="device", not_null=set(columns) - {"device"})


TABLES = ("devices", "campaigns", "trials", "policies", "pins", "generation", "ceilings")


def applied(db: Database) -> list[str]:
    """The names of the migrations this database has had, oldest first."""
    table = Migrations.migrations_table
    if table not in db.table_names():
        return []
    query = f"SELECT name FROM {table} WHERE migration_set = ? ORDER BY rowid"
    return [name for (name,) in db.execute(query, [MIGRATIONS.name]).fetchall()]


def known() -> list[str]:
    """The names of the migrations this version of the code knows, oldest first."""
    nothing_applied = Database(memory=True, execute_plugins=False)
    try:
        return [migration.name for migration in MIGRATIONS.pending(nothing_applied)]
    finally:
        nothing_applied.close()

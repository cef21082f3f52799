"""Rows to SQL and back; every function runs inside a transaction of its caller."""

from __future__ import annotations

import json
import sqlite3
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from sqlite_utils import Database

from autotune_tuning_db.keys import ProblemKey
from autotune_tuning_db.rows import (
    CampaignRow,
    CeilingsRow,
    DeviceRow,
    PinRow,
    PolicyRow,
    TrialRow,
    pack_samples,
    to_json,
    unpack_samples,
)

_AS_THEY_ARE = (
    *("campaign", "device", "mode", "stage", "variant", "fingerprint", "status", "reason"),
    *("median", "low", "high", "compile_seconds", "first_call_seconds", "error", "error_bound"),
    *("workspace_bytes", "started", "wall_seconds", "source"),
)
Row = TypeVar("Row")

_AS_JSON = ("config", "toolchain", "circumstances")

UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    zlib.error,
)
"""What a record that makes no sense raises when a row is made of it."""


def put_device(db: Database, row: DeviceRow) -> None:
    """Adds the device, or replaces its label and facts; the identity stays."""
    record = {
        "identity": row.identity,
        "kind": row.kind,
        "family": row.family,
        "label": row.label,
        "facts": to_json(row.facts),
    }
    db.table("devices").insert(record, pk="identity", replace=True)


def devices(db: Database, bad: list[str]) -> list[DeviceRow]:
    return list(each(db.query("SELECT * FROM devices ORDER BY identity"), _device, bad))


def _device(r: Mapping[str, Any]) -> DeviceRow:
    return DeviceRow(r["identity"], r["kind"], r["family"], r["label"], json.loads(r["facts"]))


def add_campaign(db: Database, row: CampaignRow) -> int:
    record = {
        "uid": row.uid or uuid.uuid4().hex,
        "device": row.device,
        "started": row.started,
        "ended": row.ended,
        "settings": to_json(row.settings),
    }
    return _insert(db, "campaigns", record)


def end_campaign(db: Database, campaign: int, ended: str) -> None:
    db.execute("UPDATE campaigns SET ended = ? WHERE id = ?", [ended, campaign])


def campaigns(db: Database, bad: list[str]) -> list[CampaignRow]:
    return list(each(db.query("SELECT * FROM campaigns ORDER BY id"), _campaign, bad))


def _campaign(r: Mapping[str, Any]) -> CampaignRow:
    return CampaignRow(
        r["id"], r["device"], r["started"], r["ended"], json.loads(r["settings"]), r["uid"]
    )


def add_trial(db: Database, row: TrialRow) -> int:
    record = {name: getattr(row, name) for name in _AS_THEY_ARE}
    record |= {name: to_json(getattr(row, name)) for name in _AS_JSON}
    record |= {"uid": row.uid or uuid.uuid4().hex, "samples": pack_samples(row.samples)}
    return _insert(db, "trials", record | _key_columns(row.problem))


def trials(
    db: Database, where: Mapping[str, Any], fingerprints: Collection[str] | None, bad: list[str]
) -> list[TrialRow]:
    """Trials in the order they were added; `where` holds column values to match."""
    clause, values = _where(where)
    found = db.query(f"SELECT * FROM trials{clause} ORDER BY id", values)
    wanted = (r for r in found if fingerprints is None or r["fingerprint"] in fingerprints)
    return list(each(wanted, _trial, bad))


def _trial(r: Mapping[str, Any]) -> TrialRow:
    return TrialRow(
        id=r["id"],
        uid=r["uid"],
        problem=ProblemKey.parse(r["problem"]),
        samples=unpack_samples(r["samples"]),
        **{name: r[name] for name in _AS_THEY_ARE},
        **{name: json.loads(r[name]) for name in _AS_JSON},
    )


def add_policy(db: Database, row: PolicyRow) -> None:
    record = {
        "device": row.device,
        "mode": row.mode,
        "created": row.created,
        "payload": to_json(row.payload),
        "source": row.source,
    }
    _insert(db, "policies", record | _key_columns(row.problem))


def policies(
    db: Database, where: Mapping[str, Any], bad: list[str], *, history: bool
) -> list[PolicyRow]:
    """The latest policy of every problem, device and mode; with `history` all, oldest first."""
    clause, values = _where(where)
    if not history:
        latest = "id IN (SELECT MAX(id) FROM policies GROUP BY problem, device, mode)"
        clause = f"{clause} AND {latest}" if clause else f" WHERE {latest}"
    found = db.query(f"SELECT * FROM policies{clause} ORDER BY id", values)
    return list(each(found, _policy, bad))


def _policy(r: Mapping[str, Any]) -> PolicyRow:
    return PolicyRow(
        ProblemKey.parse(r["problem"]),
        r["device"],
        r["mode"],
        r["created"],
        json.loads(r["payload"]),
        r["source"],
    )


def put_pin(db: Database, row: PinRow) -> None:
    delete_pin(db, row.operation, row.problem, row.device)
    record = {
        "operation": row.operation,
        "problem": row.problem.text if row.problem else "",
        "device": row.device,
        "variant": row.variant,
        "config": None if row.config is None else to_json(row.config),
    }
    _insert(db, "pins", record)


def delete_pin(db: Database, operation: str, problem: ProblemKey | None, device: str) -> bool:
    cursor = db.execute(
        "DELETE FROM pins WHERE operation = ? AND problem = ? AND device = ?",
        [operation, problem.text if problem else "", device],
    )
    return cursor.rowcount > 0


def pins(db: Database, bad: list[str]) -> list[PinRow]:
    found = db.query("SELECT * FROM pins ORDER BY operation, problem, device")
    return list(each(found, _pin, bad))


def _pin(r: Mapping[str, Any]) -> PinRow:
    return PinRow(
        r["operation"],
        ProblemKey.parse(r["problem"]) if r["problem"] else None,
        r["device"],
        r["variant"],
        json.loads(r["config"]) if r["config"] is not None else None,
    )


def put_ceilings(db: Database, row: CeilingsRow) -> None:
    record = {
        "device": row.device,
        "measured": row.measured,
        "toolchain": to_json(row.toolchain),
        "rates": to_json(row.rates),
    }
    db.table("ceilings").insert(record, pk="device", replace=True)


def ceilings(db: Database, device: str, bad: list[str]) -> CeilingsRow | None:
    found = db.query("SELECT * FROM ceilings WHERE device = ?", [device])
    return next(each(found, _ceilings, bad), None)


def _ceilings(r: Mapping[str, Any]) -> CeilingsRow:
    return CeilingsRow(
        r["device"], r["measured"], json.loads(r["toolchain"]), json.loads(r["rates"])
    )


def generation(db: Database) -> int:
    (value,) = db.execute("SELECT value FROM generation").fetchone()
    return int(value)


def uids(db: Database, table: str) -> dict[str, int]:
    """Every uid of `trials` or `campaigns`, with the id it has in this file."""
    return dict(db.execute(f"SELECT uid, id FROM {table}").fetchall())


def each(
    found: Iterable[Mapping[str, Any]], build: Callable[[Mapping[str, Any]], Row], bad: list[str]
) -> Iterator[Row]:
    """The rows that can be read; what is wrong with the others goes to `bad`."""
    for record in found:
        try:
            yield build(record)
        except UNREADABLE as error:
            name = record.get("uid") or record.get("problem") or record.get("identity")
            name = name or record.get("device") or "a row"
            bad.append(f"{name}: {error}")


BUILDERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "devices": _device,
    "campaigns": _campaign,
    "trials": _trial,
    "policies": _policy,
    "pins": _pin,
    "ceilings": _ceilings,
}
"""Every table that holds rows, and what makes a row of a record."""


def numbered_policies(db: Database) -> list[tuple[int, PolicyRow]]:
    """Every policy that can be read, superseded ones too, with its number in this file."""
    found = db.query("SELECT * FROM policies ORDER BY id")
    return list(each(found, lambda record: (record["id"], _policy(record)), []))


def delete_rows(db: Database, table: str, numbers: Iterable[int]) -> None:
    db.conn.executemany(f"DELETE FROM {table} WHERE id = ?", [(number,) for number in numbers])


def _key_columns(problem: ProblemKey) -> dict[str, str]:
    """The parts of the key as columns, so that a miss can be explained by a query."""
    return {
        "problem": problem.text,
        "operation": problem.operation,
        "dims": problem.dims_text,
        "dtype": problem.dtype,
        "flags": problem.flags_text,
        "layout": problem.layout,
    }


def _where(where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    given = {name: value for name, value in where.items() if value is not None}
    clause = " AND ".join(f"{name} = ?" for name in given)
    return (f" WHERE {clause}" if clause else ""), list(given.values())


def _insert(db: Database, table: str, record: Mapping[str, Any]) -> int:
    columns = ", ".join(record)
    marks = ", ".join("?" * len(record))
    values = [_storable(value) if isinstance(value, str) else value for value in record.values()]
    cursor: sqlite3.Cursor = db.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)
    return int(cursor.lastrowid or 0)


def _storable(text: str) -> str:
    """The text with what cannot be shown, or written as UTF-8, by its number.

    What a candidate raises may hold a byte of a file's name, or colours of a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )

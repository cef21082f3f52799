"""Carrying results to another machine, checked against what this one is and has registered."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from autotune.errors import UnknownNameError, UserError
from autotune.store import open_tuning_db
from autotune_policies import POLICY_FORMAT, Policy, row_problem, write_shipped
from autotune_tuning_db import ExchangeError, ImportReport
from autotune_tuning_db.files import write_whole


def export_file(target: Path, operation: str | None = None) -> dict[str, int]:
    """Write the store, or what it has of one operation, as JSON; the rows of each kind.

    Raises UserError when `target` is a file that is no export, StoreUnavailableError when there
    is nothing to export, UnknownNameError for an operation that was never measured.
    """
    _refuse_to_overwrite(target, "onf-autotune-export")
    try:
        with open_tuning_db(readonly=True) as store:
            if operation is None:
                return store.export_file(target)
            with tempfile.TemporaryDirectory() as folder:
                whole = Path(folder) / "whole.json"
                store.export_file(whole)
                document = _only(json.loads(whole.read_text()), operation)
    except ExchangeError as error:
        raise UserError(str(error)) from error
    _write(document, target)
    return {name: len(rows) for name, rows in document.items() if isinstance(rows, list)}


def export_shipped(target: Path, operation: str | None = None) -> dict[str, int]:
    """Write the policies alone, of every device in the store, as the package ships them.

    Imported ones count too; what made them stays behind. Raises as `export_file` does, and
    UnknownNameError when there is no policy.
    """
    _refuse_to_overwrite(target, POLICY_FORMAT)
    with open_tuning_db(readonly=True) as store:
        rows = store.policies()
    chosen = [row for row in rows if operation in (None, row.problem.operation)]
    if not chosen:
        known = {row.problem.operation for row in rows}
        if operation is None:
            raise UserError("the store has no policy to ship; tune first.")
        raise UnknownNameError("operation with a policy", operation, known)
    try:
        write_shipped([Policy.from_row(row) for row in chosen], target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}.") from None
    return {"policies": len(chosen), "devices": len({row.device for row in chosen})}


def export_recordings(folder: Path, operation: str | None = None) -> dict[str, int]:
    """Write what searches measured as recordings that `autotune replay` reads; configs per file.

    Raises UserError where `folder` is none of its own, or nothing was measured;
    UnknownNameError for an operation that was never measured.
    """
    from autotune.replay.write import write_recordings

    with open_tuning_db(readonly=True) as store:
        rows = store.trials()
    known = {row.problem.operation for row in rows}
    if operation is not None and operation not in known:
        raise UnknownNameError("operation in the store", operation, known)
    chosen = (row for row in rows if operation in (None, row.problem.operation))
    return write_recordings(chosen, folder)


def import_file(file: Path) -> ImportReport:
    """Add what an export has and this machine has not, all or nothing.

    Raises UserError when the file is no complete export; then nothing was changed.
    """
    from autotune.device import local_devices

    local = [device.identity for device in local_devices()]
    try:
        with open_tuning_db() as store:
            return store.import_file(file, local_devices=local, check=row_problem)
    except ExchangeError as error:
        raise UserError(str(error)) from error


def _refuse_to_overwrite(target: Path, kind: str) -> None:
    """Only an older file of its kind may be replaced: a wrong name must not cost anyone a file."""
    try:
        if not target.parent.is_dir():
            raise UserError(f"the folder {target.parent} does not exist; make it first.")
        if not target.exists():
            return
        with target.open("rb") as stream:
            is_export = f'"{kind}"'.encode() in stream.read(200)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}.") from None
    if not is_export:
        raise UserError(f"{target} exists and is no export; choose another name or remove it.")


def _only(document: dict[str, Any], operation: str) -> dict[str, Any]:
    """The rows of one operation, with the campaigns and devices they refer to."""
    kept = dict(document)
    for name in ("trials", "policies"):
        kept[name] = [row for row in document[name] if row["problem"].split(" ")[0] == operation]
    kept["pins"] = [row for row in document["pins"] if row["operation"] == operation]
    if not any(kept[name] for name in ("trials", "policies", "pins")):
        known = {row["problem"].split(" ")[0] for row in document["trials"] + document["policies"]}
        raise UnknownNameError("operation in the store", operation, known)
    campaigns = {row["campaign"] for row in kept["trials"]}
    devices = {row["device"] for name in ("trials", "policies", "pins") for row in kept[name]}
    kept["campaigns"] = [row for row in document["campaigns"] if row["uid"] in campaigns]
    kept["devices"] = [row for row in document["devices"] if row["identity"] in devices]
    return kept


def _write(document: dict[str, Any], target: Path) -> None:
    try:
        write_whole(json.dumps(document, indent=1, allow_nan=False) + "\n", target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}.") from None

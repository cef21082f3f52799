"""Run as a program: stores with random bytes changed, cut or doubled, one line of JSON a run.

Nobody who opens one may be surprised, no byte of the damaged file may be overwritten before it was
set aside, and what a repair brings back must be what was there.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import PROBLEM, trial

from autotune_tuning_db import (
    ExchangeError,
    PolicyRow,
    Store,
    StoreError,
    TrialRow,
    check_store,
    repair_store,
    utc_now,
)

TRIALS = 200


def fill(path: Path) -> dict[str, TrialRow]:
    with Store(path) as store:
        campaign = store.start_campaign("cpu:abc", {})
        for number in range(TRIALS):
            store.add_trial(trial(number))
        store.put_policy(PolicyRow(PROBLEM, "cpu:abc", "cold", utc_now(), {"ranking": []}))
        store.end_campaign(campaign)
        return {row.uid: row for row in store.trials()}


def spoil(path: Path, choose: random.Random) -> str:
    """Damages the file in one of a few ways; which one."""
    content = bytearray(path.read_bytes())
    way = choose.choice(("bytes", "bytes", "page", "cut", "zeros", "doubled", "head"))
    start = choose.randrange(len(content))
    if way == "bytes":
        for _ in range(choose.choice((1, 4, 100))):
            content[choose.randrange(len(content))] = choose.randrange(256)
    elif way == "page":
        first = start // 4096 * 4096
        content[first : first + 4096] = choose.randbytes(4096)
    elif way == "cut":
        del content[start:]
    elif way == "zeros":
        length = choose.choice((16, 512, 8192))
        content[start : start + length] = bytes(len(content[start : start + length]))
    elif way == "doubled":
        content[start:start] = content[start : start + 4096]
    else:
        content[choose.randrange(100)] = choose.randrange(256)
    path.write_bytes(content)
    return way


def calm(body: Callable[[], Any], wrong: list[str]) -> Any:
    """What `body` gives; one of the errors meant for users is an answer, any other is wrong."""
    try:
        return body()
    except (StoreError, ExchangeError) as error:
        if "\n" in str(error):
            wrong.append(f"more than a sentence: {error}")
    except BaseException:
        wrong.append(traceback.format_exc())
    return None


def everything(path: Path, readonly: bool, target: Path) -> None:
    with Store(path, readonly=readonly) as store:
        store.trials()
        store.policies()
        store.campaigns()
        store.pins()
        store.devices()
        store.ceilings("cpu:abc")
        store.generation()
        store.export_file(target)
        if not readonly:
            store.add_trial(trial(-1))
            store.put_policy(PolicyRow(PROBLEM, "cpu:abc", "cold", utc_now(), {}))


def one(whole: Path, before: dict[str, TrialRow], folder: Path, seed: int) -> dict[str, Any]:
    choose, wrong = random.Random(seed), list[str]()
    path, repaired = folder / "tuning.db", folder / "repaired.db"
    shutil.copy(whole, path)
    way = spoil(path, choose)
    damaged = path.read_bytes()
    shutil.copy(path, repaired)
    calm(lambda: everything(path, True, folder / "export.json"), wrong)
    if path.read_bytes() != damaged:
        wrong.append("a reader changed the file")
    found = calm(lambda: check_store(path), wrong)
    calm(lambda: everything(path, False, folder / "export.json"), wrong)
    aside = [file for file in folder.glob("tuning.db.damaged-*") if file.read_bytes() == damaged]
    known = found is not None and bool(found.damage)
    if known and not aside and path.read_bytes() != damaged:
        wrong.append(f"written to although it is damaged: {found.damage[0]}")
    done = calm(lambda: repair_store(repaired), wrong)
    kept, altered = 0, 0
    if done is not None:
        if not check_store(repaired).sound:
            wrong.append("not sound after a repair")
        if done.aside is not None and done.aside.read_bytes() != damaged:
            wrong.append("the damaged file was changed by the repair")
        with Store(repaired) as store:
            rows = store.trials()
        kept = len(rows)
        altered = sum(before.get(row.uid) is None for row in rows)  # its uid was hit
    return {
        "way": way,
        "seed": seed,
        "sound": found is not None and found.sound,
        "aside": bool(aside),
        "kept": kept,
        "altered": altered,
        "wrong": wrong,
    }


def main(folder: Path, rounds: int, seed: int) -> None:
    warnings.simplefilter("ignore")
    whole = folder / "whole.db"
    before = fill(whole)
    for turn in range(rounds):
        place = folder / f"run{turn}"
        place.mkdir()
        print(json.dumps(one(whole, before, place, seed + turn)), flush=True)
        shutil.rmtree(place)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

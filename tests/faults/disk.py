"""Run as a program under shim.c: stores on a disk that fails at random moments, one line a run.

Each line is JSON: the fault, from what it started, how many trials were kept by word of the store,
how many of those are gone afterwards, how the writer and a reader ended, and what else is wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from processes import trial

from autotune_tuning_db import Store, StoreError, TrialRow

FAULTS: dict[str, tuple[int, int]] = {
    "full": (0, 400_000),
    "quota": (0, 400_000),
    "eio": (1, 120),
    "short": (1, 120),
    "slow": (1, 300),
    "fsync": (0, 0),
    "nolock": (0, 0),
    "noshm": (0, 0),
    "remote": (0, 0),
}
"""Each fault of the shim, with the range of its FAULT_BYTES."""

STARTS = ("nothing", "closed", "log")


def named(uid: str) -> TrialRow:
    return TrialRow(**{**_fields(trial(0)), "uid": uid})


def _fields(row: TrialRow) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__slots__}


def disk(fault: str, limit: int, folder: Path) -> None:
    """Makes the disk under `folder` fail from now on; an empty name ends that."""
    os.environ.update(FAULT=fault, FAULT_BYTES=str(limit), FAULT_ROOT=str(folder))
    ctypes.CDLL(None).fault_start()


def in_child(body: Callable[[], str]) -> tuple[str, list[str]]:
    """Runs `body` in a forked process that ends without closing anything.

    How it ended: what `body` returned, the kind of a StoreError, or a traceback; and the uids
    it was told are kept.
    """
    told, tell = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(told)
        KEPT.append(tell)
        try:
            ending = body()
        except StoreError as error:
            ending = f"{error.kind}: {error}" if "\n" not in str(error) else traceback.format_exc()
        except BaseException:
            ending = traceback.format_exc()
        os.write(tell, f"!{json.dumps(ending)}\n".encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(number, 0)
    endings = [json.loads(line[1:]) for line in lines if line.startswith("!")]
    return (endings or ["killed"])[0], [line for line in lines if not line.startswith("!")]


KEPT: list[int] = []


def writer(path: Path, name: str, count: int, *, close: bool = True) -> Callable[[], str]:
    def write() -> str:
        store = Store(path)
        for number in range(count):
            uid = f"{name}-{number}"
            store.add_trial(named(uid))
            os.write(KEPT[-1], f"{uid}\n".encode())
        if close:
            store.close()
        return "done"

    return write


def reader(path: Path) -> Callable[[], str]:
    def read() -> str:
        with Store(path, readonly=True) as store:
            return f"read {len(store.trials())}, {store.generation() > 0}"

    return read


def one(fault: str, limit: int, start: str, folder: Path) -> dict[str, object]:
    """One run in an empty folder."""
    path = folder / "tuning.db"
    warnings.simplefilter("error")
    disk("", 0, folder)
    kept: list[str] = []
    if start != "nothing":
        kept = in_child(writer(path, "before", 15, close=start == "closed"))[1]
    disk(fault, limit, folder)
    wrote, told = in_child(writer(path, "during", 25))
    read, _ = in_child(reader(path))
    disk("", 0, folder)
    kept += told
    wrong = [text for text in (wrote, read) if "Traceback" in text]
    lost = len(kept)
    try:
        with Store(path) as store:
            lost = len(set(kept) - {row.uid for row in store.trials()})
            wrong += store.integrity()
            store.add_trial(named("after"))
    except BaseException:
        wrong.append(traceback.format_exc())
    return {
        "fault": fault,
        "limit": limit,
        "start": start,
        "kept": len(kept),
        "lost": lost,
        "wrote": wrote.partition(":")[0],
        "read": read.partition(":")[0],
        "wrong": wrong,
    }


def main(folder: Path, rounds: int, seed: int) -> None:
    choose = random.Random(seed)
    for turn in range(rounds):
        fault = list(FAULTS)[turn % len(FAULTS)]
        start = STARTS[(turn + turn // len(FAULTS)) % len(STARTS)]
        place = folder / f"run{turn}"
        place.mkdir()
        print(json.dumps(one(fault, choose.randint(*FAULTS[fault]), start, place)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

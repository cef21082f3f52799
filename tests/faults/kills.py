"""Run as a program: `autotune tune` is killed at random moments; one line of JSON a run.

What the store had said it kept is looked for afterwards, and the same command goes on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from filled import PLUGIN

import autotune.campaign  # noqa: F401 - before the fork, so that the time goes into tuning
from autotune.cli import main as command
from autotune.fingerprint import toolchain
from autotune.plugins import load_plugins
from autotune_tuning_db import check_store

WITNESS = Path(__file__).resolve().parent / "plugins" / "witness.py"
LONGEST = 3.0


def tuning(home: Path, *words: str) -> int:
    """A process that tunes; its number. It leads a session of its own, with its worker in it."""
    number = os.fork()
    if number:
        return number
    os.setsid()
    os.environ.update(AUTOTUNE_HOME=str(home), WITNESS=str(home / "witness"))
    log = os.open(home / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    plugins = ("--plugin", str(PLUGIN), "--plugin", str(WITNESS))
    os._exit(command(["tune", "toy_scale", *plugins, *words]))


def kept_by_word(home: Path) -> set[int]:
    notes = home / "witness"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return {int(line) for line in lines}


def alive(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def one(home: Path, moment: float) -> dict[str, object]:
    number = tuning(home, "--shape", "N=64:1048576", "--budget", "60s")
    time.sleep(moment)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    deadline = time.monotonic() + 10
    while (left := alive(number)) and time.monotonic() < deadline:
        time.sleep(0.02)
    orphans = len(left)
    for each in left:
        os.kill(each, signal.SIGKILL)
    kept, file = kept_by_word(home), home / "tuning.db"
    if not file.exists():
        return {"kept": len(kept), "lost": len(kept), "sound": True, "orphans": orphans}
    found = check_store(file)
    there = numbers(file)
    return {
        "moment": round(moment, 3),
        "kept": len(kept),
        "lost": len(kept - there),
        "sound": found.sound,
        "orphans": orphans,
        "aside": len(found.beside),
    }


def numbers(file: Path) -> set[int]:
    from autotune_tuning_db import Store

    with Store(file, readonly=True) as store:
        return {row.id for row in store.trials()}


def main(folder: Path, rounds: int, seed: int) -> None:
    choose = random.Random(seed)
    load_plugins()
    toolchain()
    for turn in range(rounds):
        home = folder / f"home{turn // 10}"  # each is killed ten times
        home.mkdir(exist_ok=True)
        print(json.dumps(one(home, choose.uniform(0.0, LONGEST))), flush=True)
    home = folder / "home0"
    before = numbers(home / "tuning.db") if (home / "tuning.db").exists() else set()
    number = tuning(home, "--shape", "64", "--budget", "1s")
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    log = (home / "log").read_text()
    print(
        json.dumps(
            {
                "went_on": code,
                "lost": len(before - numbers(home / "tuning.db")),
                "traceback": "Traceback" in log,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

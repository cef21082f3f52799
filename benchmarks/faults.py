"""Faults by the hundred: a failing disk, damaged bytes, kills, many starts at once, damaged files.

python benchmarks/faults.py [PART ...]   # disk damage kills starts fuzz (left out: all)

Runs the programs of tests/faults in their long form and files what came out, part by part, in
results/faults.json. Exit code 1 when anything was lost or surprised anyone.
"""

from __future__ import annotations

import datetime
import importlib
import json
import logging
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import RESULTS, write

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path += [str(TESTS), str(TESTS / "tuning_db"), str(TESTS / "faults")]

ROUNDS = {"disk": 270, "damage": 300, "kills": 200, "starts": 20, "fuzz": 600}
"""Runs of each part; of the last one seconds."""


def program(
    name: str, folder: Path, *words: object, env: dict[str, str] | None = None
) -> list[str]:
    """The lines that a program of tests/faults prints."""
    programs = importlib.import_module("programs")
    done = programs.python(TESTS / "faults" / name, folder, *words, env=env)
    if done.returncode or done.stderr:
        raise RuntimeError(done.stderr or f"{name} ended with {done.returncode}")
    return list(done.stdout.splitlines())


def disk(folder: Path) -> dict[str, Any]:
    """Nine faults of a disk, from three starts, at random moments."""
    programs = importlib.import_module("programs")
    library = folder / "shim.so"
    if not programs.build_shim(library):
        raise RuntimeError("needs a C compiler")
    env = {"LD_PRELOAD": str(library)}
    runs = [json.loads(line) for line in program("disk.py", folder, ROUNDS["disk"], 1, env=env)]
    return {
        "runs": len(runs),
        "kept": sum(run["kept"] for run in runs),
        "lost": sum(run["lost"] for run in runs),
        "surprises": sum(bool(run["wrong"]) for run in runs),
        "faults": Counter(run["fault"] for run in runs),
        "endings": Counter(run["wrote"] for run in runs),
    }


def damage(folder: Path) -> dict[str, Any]:
    """Random bytes of a store changed, cut or doubled; then read, written to and repaired.

    Lost would be a damaged file that was overwritten; `altered` are rows whose own bytes were hit.
    """
    runs = [json.loads(line) for line in program("damage.py", folder, ROUNDS["damage"], 1)]
    return {
        "runs": len(runs),
        "lost": sum("written to" in text for run in runs for text in run["wrong"]),
        "surprises": sum(bool(run["wrong"]) for run in runs),
        "set_aside": sum(run["aside"] for run in runs),
        "altered": sum(run["altered"] for run in runs),
        "trials_saved_of_200": round(sum(run["kept"] for run in runs) / len(runs), 1),
        "ways": Counter(run["way"] for run in runs),
    }


def kills(folder: Path) -> dict[str, Any]:
    """kill -9 of `autotune tune` at random moments of its first three seconds."""
    lines = program("kills.py", folder, ROUNDS["kills"], 1)
    *runs, after = [json.loads(line) for line in lines]
    unsound = sum(not run["sound"] or bool(run.get("aside")) for run in runs)
    return {
        "runs": len(runs),
        "kept": sum(run["kept"] for run in runs),
        "lost": sum(run["lost"] for run in runs) + after["lost"],
        "surprises": unsound + int(after["traceback"]) + int(after["went_on"] != 0),
        "processes_left": sum(run["orphans"] for run in runs),
    }


def starts(folder: Path) -> dict[str, Any]:
    """Sixteen processes at once on a store that does not exist: dispatch, write, pin."""
    lines = program("starts.py", folder, ROUNDS["starts"])
    good = sum(line == "16 0 1 () []" for line in lines)
    return {
        "runs": 16 * len(lines),
        "lost": 0,
        "rounds": len(lines),
        "surprises": len(lines) - good,
    }


def fuzz(folder: Path) -> dict[str, Any]:
    """Damaged exports, policy files, snapshots, plans and keys, for ten minutes."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    logging.getLogger("autotune").setLevel(logging.CRITICAL)
    plugins = importlib.import_module("autotune.plugins")
    plugins.load_file(importlib.import_module("filled").PLUGIN)
    damaged = importlib.import_module("fuzz").Fuzz(folder, seed=int(time.time()))
    done, faults = Counter[str](), Counter[str]()
    until = time.monotonic() + ROUNDS["fuzz"]
    while time.monotonic() < until:
        try:
            done[damaged.step()] += 1
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            faults[f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"] += 1
            traceback.print_exc()
    return {
        "runs": done.total() + faults.total(),
        "lost": 0,
        "surprises": faults.total(),
        "seconds": ROUNDS["fuzz"],
        "files": done,
        "faults": faults,
    }


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "disk": disk,
    "damage": damage,
    "kills": kills,
    "starts": starts,
    "fuzz": fuzz,
}


def filed() -> dict[str, Any]:
    """The rows that earlier runs have filed, by part."""
    file = Path(os.environ.get("OUT") or RESULTS) / "faults.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return {row["part"]: row for row in rows}


def measured(names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = PARTS[name](Path(folder))
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        took = round(time.monotonic() - started, 1)
        yield {"part": name, **found, "took_seconds": took, "date": now}


def main() -> None:
    names = sys.argv[1:] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")
    bad = 0
    for row in measured(names):
        print(row, flush=True)
        bad += row["lost"] + row["surprises"]
        rows = filed() | {row["part"]: row}
        write("faults", [rows[part] for part in PARTS if part in rows])
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()

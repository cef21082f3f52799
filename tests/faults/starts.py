"""Run as a program by the tests: sixteen processes start at once where there is no store yet.

One line a round: how many ended well, how many of the trials that were kept are there, how many
policies, what the integrity check says, and everything that was printed to stderr.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filled import PLUGIN, choice, keep, toy_problem
from processes import child, trial

import autotune.serving  # noqa: F401 - before the fork, so that all start at the same moment
from autotune import dispatch
from autotune.cli import main as command
from autotune.fingerprint import toolchain
from autotune.plugins import load_file
from autotune.store import open_tuning_db

PROCESSES = 16


def dispatches() -> None:
    x = np.ones(8, "float32")
    assert (dispatch("toy_scale", x, reverse=True)(x) == 2).all()  # one variant can, and is right


def writes() -> None:
    with open_tuning_db() as store:
        store.add_trial(trial(os.getpid()))
    keep(toy_problem(512), choice("flipped", 1e-6))


def pins() -> None:
    assert command(["pin", "toy_scale", "numpy"]) == 0


def round_of(folder: Path) -> str:
    os.environ["AUTOTUNE_HOME"] = str(folder)
    start, go = os.pipe()
    sys.stdout.flush()
    saved = os.dup(1)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

        def waiting(body: Callable[[], None]) -> None:
            os.close(go)
            os.read(start, 1)  # ends for all at once, when the parent closes its end
            body()

        bodies = [(dispatches, writes, pins)[number % 3] for number in range(PROCESSES)]
        numbers = [child(lambda body=body: waiting(body)) for body in bodies]
        os.close(go)
        codes = [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in numbers]
        os.close(start)
        os.dup2(saved, 1)
        said.seek(0)
        lines = said.read().decode().splitlines()
    with open_tuning_db() as store:
        written = {
            f"v{number}" for number, body in zip(numbers, bodies, strict=True) if body is writes
        }
        found = written & {row.variant for row in store.trials()}
        odd = [line for line in lines if "nothing measured applies" not in line]
        return (
            f"{codes.count(0)} {len(written - found)} {len(store.policies())} "
            f"{store.integrity()} {odd}"
        )


if __name__ == "__main__":
    load_file(PLUGIN)
    toolchain()  # what takes long to load, and opens no store
    for turn in range(int(sys.argv[2])):
        print(round_of(Path(sys.argv[1]) / f"round{turn}"), flush=True)

"""Run as a program by the tests: processes that share, start and get killed on one store."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from autotune_tuning_db import PolicyRow, ProblemKey, Store, TrialRow, utc_now

PROBLEM = ProblemKey("scale", (("N", 1024),), "float32")


def trial(number: int) -> TrialRow:
    return TrialRow(
        campaign=0,
        problem=PROBLEM,
        device="cpu:abc",
        mode="cold",
        stage="search",
        variant=f"v{number}",
        fingerprint="f",
        config={"n": number},
        status="ok",
        started=utc_now(),
        samples=(1e-3,) * 20,
        median=1e-3,
        low=1e-3,
        high=1e-3,
        toolchain={},
        circumstances={},
    )


def child(body: Callable[[], None]) -> int:
    """Forks; the child runs `body` and exits with 0, or prints what went wrong."""
    number = os.fork()
    if number:
        return number
    try:
        body()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def together(folder: Path, rounds: int) -> None:
    """Sixteen processes meet on a store that does not exist, again and again."""
    for turn in range(rounds):
        path = folder / f"round{turn}.db"
        start, go = os.pipe()

        def body(path: Path = path, start: int = start, go: int = go) -> None:
            os.close(go)
            os.read(start, 1)  # ends for all at once, when the parent closes its end
            with Store(path) as store:
                store.add_trial(trial(os.getpid()))
                store.put_policy(PolicyRow(PROBLEM, "cpu:abc", "cold", utc_now(), {}))

        children = [child(body) for _ in range(16)]
        os.close(go)
        codes = [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in children]
        os.close(start)
        with Store(path) as store:
            found = {row.variant for row in store.trials()}
            print(
                codes.count(0),
                len(found & {f"v{number}" for number in children}),
                len(store.policies()),
                store.integrity(),
            )


def killed(folder: Path, rounds: int) -> None:
    """Writers are killed at a random moment; what they had been told is kept must be there."""
    random.seed(20260101)
    for turn in range(rounds):
        path = folder / f"killed{turn % 3}.db"
        told, tell = os.pipe()

        def body(path: Path = path, tell: int = tell) -> None:
            with Store(path) as store:
                while True:
                    os.write(tell, store.add_trial(trial(os.getpid())).to_bytes(8, "little"))

        victim = child(body)
        os.close(tell)
        time.sleep(random.uniform(0.0, 0.1))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        with os.fdopen(told, "rb") as pipe:
            heard = pipe.read()
        ids = [int.from_bytes(heard[i : i + 8], "little") for i in range(0, len(heard), 8)]
        with Store(path) as store:
            lost = set(ids) - {row.id for row in store.trials()}
            print(len(ids), len(lost), store.integrity())


def inherited(folder: Path, rounds: int) -> None:
    """A forked child goes on with its parent's open store, while the parent does too."""
    with Store(folder / "inherited.db") as store:
        for turn in range(rounds):
            store.add_trial(trial(turn))

            def body() -> None:
                store.add_trial(trial(-1))
                store.close()

            number = child(body)
            store.add_trial(trial(turn))
            assert os.waitpid(number, 0)[1] == 0
        print(len(store.trials()), store.integrity())


if __name__ == "__main__":
    job, place, times = sys.argv[1:]
    {"together": together, "killed": killed, "inherited": inherited}[job](Path(place), int(times))

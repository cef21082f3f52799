"""How many trials a second several processes commit to one store, each on the disk when it returns.

python benchmarks/store_writers.py [--writers 8] [--seconds 10] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from common import write

from autotune_tuning_db import ProblemKey, Store, TrialRow, utc_now

PROBLEM = ProblemKey("attention", (("B", 2), ("H", 1), ("N", 2048), ("D", 64)), "float32")


def trial(number: int) -> TrialRow:
    """A row as a campaign writes it: a hundred samples, a config, toolchain and circumstances."""
    return TrialRow(
        campaign=1,
        problem=PROBLEM,
        device="cpu-some-1",
        mode="cold",
        stage="search",
        variant="simd_tiled",
        fingerprint="0123456789abcdef",
        config={"tile_q": 64, "tile_k": 128, "threads": 2, "placement": "free", "n": number},
        status="ok",
        started=utc_now(),
        samples=tuple(1e-3 + 1e-6 * sample for sample in range(100)),
        median=1e-3,
        low=1e-3,
        high=1.1e-3,
        toolchain={"numba": "0.61", "numpy": "2.2", "python": "3.11", "blas": "openblas 0.3"},
        circumstances={"load": 0.5, "cpus": [0, 1], "clock": [2.0e9, 2.1e9]},
        wall_seconds=0.5,
    )


def writer(path: Path, number: int, seconds: float, start: Barrier, results: Path) -> None:
    """Commits trials for so long; writes the seconds that each took."""
    took = []
    with Store(path) as store:
        row = trial(number)
        start.wait()
        until = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < until:
            store.add_trial(row)
            took.append(time.perf_counter() - begin)
    results.write_text(json.dumps(took))


def measured(writers: int, seconds: float, folder: Path, journal: str) -> dict[str, object]:
    """One store, so many processes."""
    path = folder / f"{journal}-{writers}.db"
    with Store(path) as store:
        assert store._db is not None
        store._db.execute(f"PRAGMA journal_mode = {journal}")
    start = multiprocessing.get_context("spawn").Barrier(writers)
    files = [folder / f"{journal}-{writers}-{number}.json" for number in range(writers)]
    children = [
        multiprocessing.get_context("spawn").Process(
            target=writer, args=(path, number, seconds, start, file)
        )
        for number, file in enumerate(files)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert all(child.exitcode == 0 for child in children)
    each = [json.loads(file.read_text()) for file in files]
    commits = sum(map(len, each))
    with Store(path) as store:
        assert len(store.trials()) == commits
        assert store.integrity() == ()
    every = sorted(took for one in each for took in one)
    return {
        "journal": journal,
        "writers": writers,
        "seconds": seconds,
        "commits": commits,
        "commits_per_second": round(commits / seconds, 1),
        "fewest_of_a_writer": min(map(len, each)),
        "median_ms": round(1e3 * statistics.median(every), 3),
        "p99_ms": round(1e3 * every[int(0.99 * len(every))], 3),
        "longest_ms": round(1e3 * every[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="where the stores lie (default: temporary)")
    given = parser.parse_args()
    rows = []
    for journal in ("wal", "delete"):
        for writers in (1, given.writers):
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                rows.append(measured(writers, given.seconds, Path(folder), journal))
                print(rows[-1])
    write("store_writers", rows)


if __name__ == "__main__":
    main()

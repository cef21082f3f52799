"""Cases ISO-1 to ISO-5: a bad candidate costs one row with its reason, and nothing else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import psutil
import pytest
from case_lab import (
    MEASURED,
    InProcess,
    clean_registry,
    doubling,
    measured,
    session,
    tuned,
    with_variants,
)
from command_line import Run

from autotune import dispatch
from autotune.campaign import Campaign, CampaignError, Settings
from autotune.device import local_cpu
from autotune.model import Choice, Problem
from autotune.plugins import load_file
from autotune.registry import operation, registry, variant
from autotune.store import open_tuning_db
from autotune.worker import Job, Outcome, Worker
from autotune.worker.protocol import PREPARING
from autotune_policies import Policy
from autotune_tuning_db import TrialRow, open_store

__all__ = ["clean_registry"]
PLUGINS = Path(__file__).parent / "plugins"
DOOMED = Path(__file__).parents[1] / "cli" / "plugins" / "toy_doomed.py"


def campaign(name: str, **settings: Any) -> Campaign:
    """One problem of the crashing plugin, for the real measuring process and the user's store."""
    load_file(PLUGINS / "case_crashes.py")
    problem = Problem.of(registry.operation(name), (64,))
    given: dict[str, Any] = {"budget": 3.0, "mode": "hot", "trials": 20}
    return Campaign([problem], device=local_cpu(), settings=Settings(**{**given, **settings}))


def last_rows() -> dict[str, TrialRow]:
    """The last trial of each variant, races left out."""
    with open_tuning_db() as store:
        return {row.variant: row for row in store.trials() if row.stage == "search"}


def test_iso_1_a_crash_costs_one_row_and_no_other_candidate(run: Run) -> None:
    (result,) = campaign("case_crashes").run().results
    assert result.policy is not None
    assert result.policy.winner.variant == "honest"
    rows = last_rows()
    told = {name: (row.status, row.reason) for name, row in rows.items()}
    assert told["segfault"] == ("crashed", "killed by SIGSEGV while building")
    assert told["aborts"] == (
        "crashed",
        "killed by SIGABRT while building; last output: assertion failed: tile > 0",
    )
    assert told["exits"] == ("failed", "raised SystemExit: 3")
    assert told["greedy"][0] == "failed"
    assert told["greedy"][1].startswith("ran out of memory")
    assert rows["honest"].status in MEASURED
    shown = run("show", "--failures", "--plugin", PLUGINS / "case_crashes.py").flat
    for status, reason in (told[name] for name in ("segfault", "aborts", "exits", "greedy")):
        assert f"{status} {reason[:40]}" in shown
    assert len(np.ones(4)) == 4  # this process is as it was


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Started by a process in which numba's threads are at work already."""

    @numba.njit(parallel=True)
    def warm(x: Any) -> float:
        total = 0.0
        for i in numba.prange(x.size):
            total += x[i]
        return total

    assert warm(np.ones(1000)) == 1000.0
    load_file(PLUGINS / "case_crashes.py")
    with Worker(local_cpu()) as made:
        yield made


def job(variant_name: str, budget: float = 0.05) -> Job:
    key = Problem.of(registry.operation("case_bomb"), (64,)).key.text
    given = {"mode": "hot", "budget": budget, "precision": 1e-9, "retries": 0}
    return Job(key, variant_name, {}, **given)  # type: ignore[arg-type]


def test_iso_1_who_crashes_in_a_process_that_others_used_is_tried_alone(worker: Worker) -> None:
    assert worker.measure(job("bomb")).status in MEASURED
    assert worker.measure(job("slow", budget=0.8)).status in MEASURED  # it goes off meanwhile
    assert worker._process is not None
    assert worker._process.answers == 1


def test_iso_5_a_worker_is_started_afresh_and_not_forked(worker: Worker) -> None:
    assert worker.measure(job("slow")).status in MEASURED
    assert worker._process is not None
    assert "autotune.worker" in psutil.Process(worker._process.popen.pid).cmdline()


@pytest.mark.parametrize(
    ("raises", "reason"),
    [
        (RuntimeError("no such tile\nat line 7"), "raised RuntimeError: no such tile"),
        (SystemExit(3), "raised SystemExit: 3"),
        (KeyError("block"), "raised KeyError: 'block'"),
        (GeneratorExit(), "raised GeneratorExit"),
        (ExceptionGroup("two", [ValueError(), TypeError()]), "raised ExceptionGroup: two"),
        (RecursionError("too deep"), "raised RecursionError: too deep"),
    ],
)
def test_iso_2_whatever_a_candidate_raises_is_one_failure_with_its_reason(
    raises: BaseException, reason: str
) -> None:
    target = with_variants(doubling("iso_2"), "honest")

    @variant(target, "raising")
    def raising(x: Any, y: Any) -> None:
        raise raises

    at = session()
    outcome = measured(target, "raising", at)
    assert (outcome.status, outcome.phase) == ("failed", "building")
    assert outcome.reason.startswith(reason)
    assert "\n" not in outcome.reason
    assert measured(target, "honest", at).status in MEASURED


def test_iso_3_when_everything_fails_nothing_is_stored_and_the_older_winner_stays(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Campaign.__init__
    here = {**made.__kwdefaults__, "make_worker": lambda _: InProcess(session())}
    monkeypatch.setattr(made, "__kwdefaults__", here)
    ended = run("tune", "toy_doomed", "--shape", 64, "--budget", "1s", "--plugin", DOOMED)
    assert ended.code == 3
    assert "toy_doomed/first failed: raised ValueError: the first never works" in ended.flat
    assert "toy_doomed/second wrong: y has 64 of 64 elements unwritten" in ended.flat
    assert "nothing was stored as winner." in ended.err  # there is none before
    with open_tuning_db() as store:
        assert store.policies() == []
    kernel = dispatch("toy_doomed", (64,))
    assert kernel.origin == "predicted"
    assert (kernel(np.ones(64, "f4")) == 1).all()  # and never by the one that was wrong


class Calm(InProcess):
    """A measuring process on which no other program ever seems to run."""

    def measure(self, job: Job) -> Outcome:
        outcome = super().measure(job)
        return replace(outcome, status="ok", reason="") if outcome.status in MEASURED else outcome


def test_iso_3_an_older_winner_is_kept_when_all_fail_later(tmp_path: Path) -> None:
    broken: list[bool] = []
    target = doubling("iso_3")

    @variant(target, "moody")
    def moody(x: Any, y: Any) -> None:
        if broken:
            raise RuntimeError("out of order")
        np.multiply(x, 2, out=y)

    with open_store(tmp_path / "tuning.db") as store:
        tuned(target, store, worker=Calm(session()))  # a disturbed trial would be taken anew
        (before,) = store.policies()
        broken.append(True)
        (result,) = tuned(target, store).results
        assert (result.policy, result.tried) == (Policy.from_row(before), 0)
        with pytest.raises(CampaignError, match="out of order"):
            tuned(target, store, size=64)
        assert store.policies() == [before]


def test_iso_3_a_problem_that_cannot_be_prepared_is_given_up(tmp_path: Path) -> None:
    @operation(inputs="x[N]", outputs="y[N]", name="iso_3_unprepared")
    def unprepared(x: Any) -> Any:
        """Nobody knows."""
        raise RuntimeError("the reference is out of order")

    @variant(unprepared, "innocent", tunables=[Choice("pause", tuple(range(9)))])
    def innocent(x: Any, y: Any, pause: int) -> None:
        raise AssertionError

    with open_store(tmp_path / "tuning.db") as store:
        with pytest.raises(CampaignError, match="the reference is out of order"):
            tuned(unprepared, store)
        assert [row.circumstances["phase"] for row in store.trials()] == [PREPARING] * 2


def test_iso_4_what_ran_out_of_memory_rules_out_what_needs_more(tmp_path: Path) -> None:
    target = with_variants(doubling("iso_4"), "hoards")
    worker = InProcess(session())
    with open_store(tmp_path / "tuning.db") as store:
        (result,) = tuned(target, store, worker=worker).results
        rows = {row.config["room"]: row for row in store.trials() if row.stage == "search"}
    assert [job.config["room"] for job in worker.jobs if job.config["room"] > 2] == [4]
    assert rows[4].reason == "ran out of memory (4 pieces)"
    assert rows[4].circumstances["out_of_memory"] is True
    for room in (8, 16):
        assert rows[room].status == "unavailable"
        assert rows[room].reason.startswith("not tried: it needs")
    assert result.policy is not None
    assert dict(result.policy.winner.config)["room"] in (1, 2)
    assert {f.candidate.config["room"] for f in result.failures} == {4, 8, 16}


def test_iso_4_what_a_failed_candidate_held_is_free_before_the_next() -> None:
    held: list[weakref.ref[Any]] = []
    target = doubling("iso_4_held")

    @variant(target, "holding")
    def holding(x: Any, y: Any) -> None:
        hoard = np.empty(1 << 20)
        held.append(weakref.ref(hoard))
        try:
            raise KeyError("inner")
        except KeyError:
            raise RuntimeError("outer") from None

    gc.disable()
    try:
        outcome = measured(target, "holding")
        assert outcome.reason == "raised RuntimeError: outer"
        assert held[0]() is None
    finally:
        gc.enable()


def test_iso_4_more_memory_than_was_declared_is_recorded() -> None:
    target = doubling("iso_4_peak")

    @variant(target, "secretive")
    def secretive(x: Any, y: Any) -> None:
        np.ones(8 << 20)  # 64 MiB
        np.multiply(x, 2, out=y)

    outcome = measured(target, "secretive")
    if "peak_bytes" not in outcome.circumstances:
        pytest.skip("this system does not tell the peak of a process")
    assert outcome.circumstances["peak_bytes"] == pytest.approx(64 << 20, rel=0.2)
    assert outcome.workspace_bytes == outcome.circumstances["peak_bytes"]

"""Whole campaigns with the true worker, on operations of a plugin file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from autotune import dispatch, serving, tune
from autotune.campaign import CampaignError
from autotune.campaign.events import MEASURED, TrialEnded
from autotune.plugins import load_file
from autotune.registry import registry
from autotune_tuning_db import TrialRow, open_store

PLUGIN = Path(__file__).with_name("toy_plugin.py")
SCRIPT = f"""
from autotune import tune
from autotune.campaign.events import MEASURED, TrialEnded
from autotune.plugins import load_file
load_file({str(PLUGIN)!r})

def tell(event):
    if isinstance(event, TrialEnded):
        print(event.candidate.variant, flush=True)

try:
    policy = tune("campaign_scale", (1024,), mode="hot", budget="20s", progress=tell)
    print("winner", policy.winner.variant, dict(policy.winner.config))
except KeyboardInterrupt as interrupt:
    print("interrupted", interrupt)
"""


@pytest.fixture(scope="module", autouse=True)
def plugin() -> None:
    load_file(PLUGIN)
    registry.operation("campaign_scale")


def trials(home: Path) -> list[TrialRow]:
    """What was tried; a busy machine adds rows of comparisons, which are not counted here."""
    with open_store(home / "tuning.db") as store:
        return [row for row in store.trials() if row.stage == "search"]


def candidates(rows: list[TrialRow]) -> list[tuple[str, tuple[tuple[str, object], ...]]]:
    return [(row.variant, tuple(sorted(row.config.items()))) for row in rows]


def start() -> subprocess.Popen[str]:
    """A campaign in a process and a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop_after(
    process: subprocess.Popen[str], count: int, stop: signal.Signals
) -> tuple[str, list[psutil.Process]]:
    """Let it finish `count` trials and send the signal; what it printed, and its children."""
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(count)]
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, stop)
    rest, _ = process.communicate(timeout=60)
    return "".join(printed) + rest, children


def test_a_campaign_measures_what_works_and_says_what_does_not(
    private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_server", None)
    assert dispatch("campaign_scale", (1024,), mode="hot").origin == "predicted"
    events: list[TrialEnded] = []
    policy = tune(
        "campaign_scale",
        (1024,),
        mode="hot",
        budget="20s",
        progress=lambda event: events.append(event) if isinstance(event, TrialEnded) else None,
    )
    assert dispatch("campaign_scale", (1024,), mode="hot").origin == "tuned"
    assert policy.winner.variant == "sleepy"
    assert dict(policy.winner.config) == {"pause": 1}
    assert 1e-3 < policy.winner.seconds < 3e-3
    rows = trials(private_home)
    assert len(events) == len(rows) == len(set(candidates(rows)))
    by_variant = {row.variant: row for row in rows}
    assert by_variant["wrong"].status == "wrong"
    assert by_variant["raising"].status == "failed"
    assert "this variant cannot be built" in by_variant["raising"].reason
    assert by_variant["dying"].status == "crashed"
    assert "picky" not in by_variant
    assert all(row.reason for row in rows if row.status in ("wrong", "failed", "crashed"))


def test_everything_fails(private_home: Path) -> None:
    with pytest.raises(CampaignError, match="out of luck") as caught:
        tune("toy_broken", (64,), mode="hot", budget="20s")
    assert "second_broken" in str(caught.value)
    with open_store(private_home / "tuning.db") as store:
        assert store.policies() == []
        assert len(store.trials()) >= 2


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")
def test_killed_at_any_moment_it_goes_on_where_it_was(private_home: Path) -> None:
    process = start()
    stop_after(process, 3, signal.SIGKILL)
    before = trials(private_home)
    assert len(before) >= 3
    again = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120
    )
    assert "winner sleepy {'pause': 1}" in again.stdout
    after = trials(private_home)
    assert candidates(after)[: len(before)] == candidates(before)
    more = candidates(after)[len(before) :]
    assert len(more) == len(set(more))
    undisturbed = [row for row in before if not (row.status in MEASURED and row.reason)]
    assert not set(more) & set(candidates(undisturbed))


def test_ctrl_c_ends_cleanly_and_keeps_everything(private_home: Path) -> None:
    process = start()
    printed, workers = stop_after(process, 2, signal.SIGINT)
    assert process.returncode == 0
    kept = len(trials(private_home))
    assert f"interrupted interrupted; kept {kept} measurements" in printed
    assert "Run the same command" in printed
    assert workers, "there was no worker to end"
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive, "the worker outlived its campaign"

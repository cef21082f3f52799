"""What is measured outside of a campaign is kept like a campaign's."""

from __future__ import annotations

import pytest
from accept_bench import FakeWorker, candidate, problem

from autotune.device import local_cpu
from autotune.errors import UserError
from autotune.store import open_tuning_db
from autotune.trials import trials_on


def test_every_trial_is_in_the_store_with_its_label_and_its_campaign() -> None:
    worker = FakeWorker({"numpy": 1e-3, "thrice": 2e-3})
    with trials_on(
        local_cpu(), command="accept", mode="hot", label="v1", make_worker=lambda device: worker
    ) as trials:
        trials.measure(problem(), candidate("numpy"), budget=0.5)
        pair = candidate("numpy"), candidate("thrice", repeats=1)
        trials.race(problem(), pair, rounds=9, budget=1.0)
        trials.check(problem(), candidate("numpy"))
    assert (worker.jobs[0].budget, worker.jobs[0].mode) == (0.5, "hot")
    assert (worker.races[0].min_rounds, worker.races[0].max_rounds) == (9, 9)
    with open_tuning_db(readonly=True) as store:
        rows = store.trials(problem().key, local_cpu().identity, mode="hot")
        (campaign,) = store.campaigns()
    assert [(row.stage, row.variant, row.status) for row in rows] == [
        ("search", "numpy", "ok"),
        ("race", "numpy", "ok"),
        ("race", "thrice", "ok"),
    ]
    assert {row.circumstances["label"] for row in rows} == {"v1"}
    assert len({row.circumstances.get("race") for row in rows[1:]}) == 1
    assert len(rows[1].samples) == 9
    assert all(row.error is None for row in rows[1:])  # a race does not report it
    assert all(row.fingerprint and row.toolchain for row in rows)
    assert campaign.ended is not None
    assert campaign.settings == {"command": "accept", "mode": "hot"}


def test_a_mode_that_the_device_does_not_have_is_refused_before_anything_is_opened() -> None:
    with (
        pytest.raises(UserError, match="needs a GPU"),
        trials_on(local_cpu(), command="accept", mode="graph"),
    ):
        raise AssertionError
    with pytest.raises(Exception, match="tuning database"):
        open_tuning_db(readonly=True)

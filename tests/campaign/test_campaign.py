"""Campaigns with a fake worker: what is measured, kept, chosen and reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from campaign_fakes import Bench, FakeWorker, tiled_wins

from autotune.campaign import CampaignError, CampaignInterrupted, Settings
from autotune.campaign.beside import time_beside
from autotune.campaign.events import ProblemEnded, ProblemStarted, RaceStarted, TrialEnded
from autotune.campaign.track import SEMIFINALISTS
from autotune.errors import StoreUnavailableError
from autotune.model import Problem
from autotune.worker.protocol import Job, RaceOutcome
from autotune_policies import Choice, Policy
from autotune_tuning_db import StoreError, TrialRow


def policies(bench: Bench) -> list[Policy]:
    return [Policy.from_row(row) for row in bench.store.policies()]


def test_the_fastest_candidate_becomes_the_policy(bench: Bench) -> None:
    (result,) = bench.campaign().run().results
    assert result.policy is not None
    assert result.policy.winner.variant == "tiled"
    config = dict(result.policy.winner.config)
    assert config == {"tile": 128, "threads": 4, "order": "columns"}
    assert policies(bench) == [result.policy]
    assert {choice.variant for choice in result.policy.variants} == {"tiled", "plain"}
    assert result.skipped == {"picky": "needs N >= 4096"}


def test_every_trial_is_a_row_and_no_candidate_is_measured_twice(bench: Bench) -> None:
    (result,) = bench.campaign().run().results
    jobs = [(job.variant, tuple(sorted(job.config.items()))) for job in bench.worker.jobs]
    assert len(jobs) == len(set(jobs)) == result.tried
    rows = [row for row in bench.store.trials() if row.stage == "search"]
    assert len(rows) == result.tried
    assert Counter(row.status for row in rows) == result.counts


def test_every_variant_is_compiled_once_before_anything_is_measured(bench: Bench) -> None:
    bench.campaign(sizes=(64, 128)).run()
    compiled = [(job.variant, job.problem) for job in bench.worker.compiled]
    first = bench.worker.jobs[0].problem
    assert sorted(compiled) == [("plain", first), ("tiled", first)]
    kinds = [type(event).__name__ for event in bench.events]
    assert kinds.index("Waiting") < kinds.index("TrialStarted")


def test_it_stops_before_the_budget_when_nothing_gets_better(bench: Bench) -> None:
    (result,) = bench.campaign(budget=1e6).run().results
    assert result.tried < result.candidates
    assert result.stopped == "nothing better was left to try"


def test_the_budget_is_a_ceiling(bench: Bench) -> None:
    result = bench.campaign(budget=2.0).run()
    assert result.seconds <= 2.1
    assert result.results[0].stopped == "the time was up"


def test_defaults_are_measured_even_without_time_or_trials(bench: Bench) -> None:
    (result,) = bench.campaign(budget=1e-9, trials=1).run().results
    assert {job.variant for job in bench.worker.jobs} == {"plain", "tiled"}
    assert result.tried == 2
    assert result.policy is not None


def test_trials_limits_the_candidates(bench: Bench) -> None:
    (result,) = bench.campaign(trials=5).run().results
    assert result.tried == 5
    assert result.stopped == "5 trials were made"


def test_a_second_campaign_measures_nothing_and_keeps_the_policy(bench: Bench) -> None:
    bench.campaign().run()
    before = bench.store.policies()
    (result,) = bench.campaign().run().results
    assert bench.worker.jobs == []
    assert bench.worker.races == []
    assert result.policy is not None
    assert not result.renewed
    assert bench.store.policies() == before


def test_an_interrupted_campaign_goes_on_where_it_was(bench: Bench) -> None:
    def interrupt(job: Job) -> float | str:
        if len(bench.worker.jobs) == 10:
            raise KeyboardInterrupt
        return tiled_wins(job)

    with pytest.raises(
        CampaignInterrupted, match=r"kept 9 measurements and the policies of 0 of 1"
    ):
        bench.campaign(answer=interrupt).run()
    assert bench.worker.closed
    assert len(bench.store.trials()) == 9
    measured = {(row.variant, tuple(sorted(row.config.items()))) for row in bench.store.trials()}
    (result,) = bench.campaign().run().results
    again = {(job.variant, tuple(sorted(job.config.items()))) for job in bench.worker.jobs}
    assert result.known == 9
    assert not again & measured
    assert [row.ended is None for row in bench.store.campaigns()] == [True, False]


def test_failures_are_rows_and_reasons(bench: Bench) -> None:
    def answer(job: Job) -> float | str:
        if job.variant == "plain":
            return "wrong"
        return "crashed" if job.config["threads"] == 2 else tiled_wins(job)

    (result,) = bench.campaign(answer=answer).run().results
    assert result.policy is not None
    assert result.policy.winner.variant == "tiled"
    assert result.wrong == 1
    assert result.failed == result.counts["crashed"] > 0
    assert "plain [-]: wrong, it wrong" in result.reasons()
    assert "picky: skipped, needs N >= 4096" in result.reasons()
    assert all("\n" not in reason for reason in result.reasons())
    assert f"{result.tried} tried" in result.summary()
    assert "1 wrong" in result.summary()
    assert "1 skipped" in result.summary()


def test_when_everything_fails_nothing_is_stored_as_winner(bench: Bench) -> None:
    with pytest.raises(
        CampaignError,
        match=r"no candidate could be measured(.|\n)*tiled.* \(and 6 more of its configs\)",
    ) as caught:
        bench.campaign(answer=lambda job: "failed").run()
    assert caught.value.exit_code == 3
    assert bench.store.policies() == []
    assert {row.status for row in bench.store.trials()} == {"failed"}


def test_when_everything_fails_the_older_winner_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.campaign().run()
    (before,) = bench.store.policies()
    monkeypatch.setattr("autotune.campaign.run.fingerprint", lambda variant: "edited")
    with pytest.raises(CampaignError):
        bench.campaign(answer=lambda job: "failed").run()
    assert bench.store.policies() == [before]


def test_after_everything_failed_the_next_campaign_tries_again(bench: Bench) -> None:
    with pytest.raises(CampaignError):
        bench.campaign(answer=lambda job: "failed").run()
    (result,) = bench.campaign().run().results
    assert result.policy is not None
    assert result.known == 0


def test_a_timeout_is_tried_again_by_the_next_campaign(bench: Bench) -> None:
    bench.campaign(
        answer=lambda job: "timeout" if job.variant == "plain" else tiled_wins(job)
    ).run()
    (result,) = bench.campaign().run().results
    assert [job.variant for job in bench.worker.jobs] == ["plain"]
    assert result.failures == ()


def test_one_bad_problem_does_not_spoil_the_others(bench: Bench) -> None:
    def answer(job: Job) -> float | str:
        return "failed" if "N=2048" in job.problem else tiled_wins(job)

    result = bench.campaign((1024, 2048, 4096), answer).run()
    assert [each.policy is None for each in result.results] == [False, True, False]
    assert [each.problem.sizes["N"] for each in result.empty] == [2048]
    assert len(policies(bench)) == 2


def test_an_edited_variant_is_measured_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.campaign().run()
    monkeypatch.setattr(
        "autotune.campaign.run.fingerprint",
        lambda variant: "edited" if variant.name == "plain" else "same",
    )
    bench.campaign().run()
    monkeypatch.setattr("autotune.campaign.run.fingerprint", lambda variant: "same")
    (result,) = bench.campaign().run().results
    assert {job.variant for job in bench.worker.jobs} == {"plain"}
    assert result.renewed


def test_another_toolchain_races_again_instead_of_tuning_again(bench: Bench) -> None:
    def compiler(version: str) -> Callable[[FakeWorker], None]:
        return lambda worker: setattr(worker, "toolchain", {"compiler": version})

    (first,) = bench.campaign(prepare=compiler("1")).run().results
    (second,) = bench.campaign(prepare=compiler("2")).run().results
    assert [job.variant for job in bench.worker.jobs] == ["tiled", "plain"]
    assert second.renewed
    assert first.policy is not None
    assert second.policy is not None
    assert second.policy.winner.candidate == first.policy.winner.candidate
    assert {choice.variant for choice in second.policy.variants} == {"tiled", "plain"}
    assert second.policy.toolchain == {"compiler": "2"}


def test_a_store_that_fills_up_ends_the_campaign_and_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = StoreError("the disk is full", kind="full", path=bench.store.path)
    add = bench.store.add_trial

    def add_until_full(row: TrialRow) -> int:
        if len(bench.worker.jobs) > 3:
            raise full
        return add(row)

    monkeypatch.setattr(bench.store, "add_trial", add_until_full)
    with pytest.raises(StoreUnavailableError, match="the disk is full"):
        bench.campaign().run()
    assert bench.worker.closed
    assert len(bench.store.trials()) == 3


def test_leaders_race_and_the_race_is_kept(bench: Bench) -> None:
    def close(job: Job) -> float | str:
        return 4.1e-4 if job.variant == "plain" else tiled_wins(job)

    campaign = bench.campaign(answer=close, budget=6.0, leaders_within=0.15)
    (result,) = campaign.run().results
    (race,) = bench.worker.races
    assert {name for name, _ in race.entrants} == {"plain", "tiled"}
    rows = [row for row in bench.store.trials() if row.stage == "race"]
    assert len(rows) == len(race.entrants)
    assert len({row.circumstances["race"] for row in rows}) == 1
    assert {len(row.samples) for row in rows} == {12}
    assert any(isinstance(event, RaceStarted) for event in bench.events)
    assert result.policy is not None
    assert result.policy.verdict.kind == "clear"


def test_heats_find_the_best_of_many_that_single_measurements_cannot_tell_apart(
    bench: Bench,
) -> None:
    """Measured alone, tile 8 is the unluckiest of all that seem equal; in turn it wins."""

    def alone(job: Job) -> float | str:
        if job.variant == "plain":
            return 9.0e-4
        return 1.05e-4 if job.config["tile"] == 8 else 1.0e-4 + 1e-7 * job.config["tile"]

    def in_turn(job: Job) -> float | str:
        return 0.9e-4 if job.config.get("tile") == 8 else 1.0e-4

    def prepare(worker: FakeWorker) -> None:
        worker.in_turn = in_turn

    campaign = bench.campaign(answer=alone, prepare=prepare, leaders=60, budget=1000.0)
    (result,) = campaign.run().results
    heat, *finals = bench.worker.races
    assert len(heat.entrants) > len(finals[0].entrants)
    assert result.policy is not None
    assert dict(result.policy.winner.config)["tile"] == 8
    assert result.policy.verdict.kind != "undecided"
    assert min(c.seconds for c in result.policy.choices) == result.policy.winner.seconds


def test_many_near_equals_run_two_heats_before_the_final(bench: Bench) -> None:
    def alike(job: Job) -> float | str:
        return 1.0e-4 + 1e-9 * job.config.get("tile", 0)

    bench.campaign(answer=alike, leaders=60, budget=1000.0).run()
    many, fewer, final, *_ = (len(race.entrants) for race in bench.worker.races)
    assert many > fewer == SEMIFINALISTS > final == Settings().finalists


@pytest.mark.parametrize(("rounds", "believed"), [(1, False), (5, False), (6, True)])
def test_a_comparison_of_too_few_rounds_says_nothing(
    bench: Bench, rounds: int, believed: bool
) -> None:
    """One slow round of the anchor would make whatever ran beside it the winner."""
    problem = Problem.of(bench.operation, (1024,))
    worker = SimpleNamespace(
        race=lambda job: RaceOutcome("ok", samples=((40.0,) * rounds, (14.0,) * rounds))
    )
    session = SimpleNamespace(settings=Settings(), worker=worker)
    one, other = (
        Choice(name, (), 4.0, 3.9, 4.1, 0, 0.0, True, "f", 9) for name in ("tiled", "plain")
    )
    found, outcome = time_beside(session, problem, one, other, 0.1)  # type: ignore[arg-type]
    assert len(outcome.samples[0]) == rounds
    assert (found is not None) == believed


def test_a_final_with_time_left_is_run_in_several_processes(bench: Bench) -> None:
    def close(job: Job) -> float | str:
        return 4.1e-4 if job.variant == "plain" else tiled_wins(job)

    campaign = bench.campaign(answer=close, budget=60.0, leaders_within=0.15)
    (result,) = campaign.run().results
    assert [race.max_rounds for race in bench.worker.races] == [3000 // 5] * 5
    assert all(race.entrants == bench.worker.races[0].entrants for race in bench.worker.races)
    assert bench.worker.renewed == 4
    rows = [row for row in bench.store.trials() if row.stage == "race"]
    assert len(rows) == 5 * len(bench.worker.races[0].entrants)
    assert result.policy is not None
    assert {c.samples for c in result.policy.choices if c.variant == "plain"} == {5 * 12}


def test_a_clear_winner_needs_one_process(bench: Bench) -> None:
    bench.campaign(budget=60.0).run()
    assert bench.worker.renewed == 0


def test_an_entrant_that_goes_wrong_in_the_race_loses_its_result(bench: Bench) -> None:
    def close(job: Job) -> float | str:
        return 4.0e-4 if job.variant == "plain" else tiled_wins(job)

    campaign = bench.campaign(answer=close, prepare=lambda worker: worker.culprits.append(0))
    (result,) = campaign.run().results
    (name, config), *_ = bench.worker.races[0].entrants
    assert result.policy is not None
    assert (name, tuple(sorted(config.items()))) not in {c.candidate for c in result.policy.choices}
    assert any(failure.candidate.variant == name for failure in result.failures)


def test_the_budget_is_shared_and_what_is_left_over_passed_on(bench: Bench) -> None:
    bench.campaign((1024, 2048, 4096), budget=90.0).run()
    shares = [event.budget for event in bench.events if isinstance(event, ProblemStarted)]
    results = [event.result for event in bench.events if isinstance(event, ProblemEnded)]
    assert 0.0 < shares[0] < 30.0  # the smallest of three, and what it leaves is passed on
    assert shares[-1] == pytest.approx(90.0 - sum(each.seconds for each in results[:-1]), rel=1e-6)
    assert shares[-1] > shares[1]


def test_the_winner_of_a_neighbour_is_tried_right_after_the_defaults(bench: Bench) -> None:
    bench.campaign((1024, 2048)).run()
    second = [job for job in bench.worker.jobs if "N=2048" in job.problem]
    assert dict(second[2].config) == {"tile": 128, "threads": 4, "order": "columns"}


def test_events_tell_the_best_and_its_lead(bench: Bench) -> None:
    bench.campaign().run()
    ended = [event for event in bench.events if isinstance(event, TrialEnded)]
    last = ended[-1]
    assert last.best is not None
    assert last.best.variant == "tiled"
    assert last.best_seconds == pytest.approx(4e-4)
    assert last.lead == pytest.approx(1.5, rel=0.01)
    assert sum(last.counts.values()) == len(ended)


def test_candidates_get_the_best_so_far_to_beat(bench: Bench) -> None:
    bench.campaign().run()
    first, *rest = bench.worker.jobs
    assert first.incumbent is None
    best = tiled_wins(first)
    for job in rest:
        assert job.incumbent == best
        best = min(best, tiled_wins(job))


def test_a_busy_machine_does_not_favour_what_was_measured_in_a_quiet_moment(bench: Bench) -> None:
    """The default of `plain` is met in peace; all later ones while others use the machine."""

    def prepare(worker: FakeWorker) -> None:
        worker.load = lambda: 1.0 if len(worker.jobs) <= 1 else 6.0

    (result,) = bench.campaign(prepare=prepare).run().results
    assert bench.worker.jobs[0].variant == "plain"
    assert result.policy is not None
    winner = result.policy.winner
    assert winner.variant == "tiled"
    assert dict(winner.config) == {"tile": 128, "threads": 4, "order": "columns"}
    assert winner.seconds == winner.low == pytest.approx(2.4e-3), "no sample of it took less"
    rows = [row for row in bench.store.trials() if row.stage == "search"]
    raw = {row.median for row in rows if row.variant == "tiled"}
    assert min(time for time in raw if time) == pytest.approx(2.4e-3), "samples stay as taken"


def test_what_was_compared_on_a_busy_machine_is_known_afterwards(bench: Bench) -> None:
    def prepare(worker: FakeWorker) -> None:
        worker.load = lambda: 1.0 if len(worker.jobs) <= 1 else 6.0

    (first,) = bench.campaign(prepare=prepare, trials=30).run().results
    (second,) = bench.campaign(trials=1).run().results
    assert first.policy is not None
    assert second.policy is not None
    assert second.known == first.counts.total()
    assert second.policy.winner.candidate == first.policy.winner.candidate

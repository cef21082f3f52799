"""Who races, and what a race on a busy machine is worth."""

from __future__ import annotations

import pytest

from autotune.campaign.beside import fair_race
from autotune.campaign.seen import Seen, grounded_policy
from autotune.campaign.session import Settings
from autotune.campaign.track import Raced
from autotune.campaign.verdict import leaders
from autotune.worker.protocol import RaceOutcome
from autotune_policies import Choice, Race, Subject, build_policy
from autotune_tuning_db import ProblemKey

KEY = ProblemKey("toy", (("N", 4096),), "float32")


def choice(variant: str, seconds: float, *, tile: int = 1, width: float = 0.01) -> Choice:
    return Choice(
        variant=variant,
        config=(("tile", tile),),
        seconds=seconds,
        low=seconds * (1 - width),
        high=seconds * (1 + width),
        workspace_bytes=0,
        error=0.0,
        deterministic=True,
        fingerprint="f",
        samples=9,
    )


def test_the_best_of_every_variant_in_reach_races_before_other_configs() -> None:
    choices = [
        choice("a", 1.00, tile=1),
        choice("a", 1.01, tile=2),
        choice("a", 1.02, tile=3),
        choice("b", 1.03),
        choice("c", 1.04),
        choice("d", 1.50),
    ]
    found = leaders(choices, Settings())
    assert [(c.variant, dict(c.config)["tile"]) for c in found] == [
        ("a", 1),
        ("b", 1),
        ("c", 1),
        ("a", 2),
        ("a", 3),
    ]
    assert len(leaders(choices, Settings(leaders=4))) == 4


def test_a_clear_leader_races_the_runner_up() -> None:
    """What seems clear may be a false time: of `numpy`, say, timed beside a stalled anchor."""
    clear = [choice("a", 1.0), choice("a", 1.3, tile=2), choice("b", 1.4), choice("c", 1.5)]
    assert [each.variant for each in leaders(clear, Settings())] == ["a", "b"]
    assert len(leaders([choice("a", 1.0), choice("a", 1.4, tile=2)], Settings())) == 2
    assert len(leaders([choice("a", 1.0)], Settings())) == 1
    assert leaders([], Settings()) == []


def test_another_variant_races_beside_many_configs_of_one() -> None:
    choices = [choice("a", 1.0 + 0.01 * tile, tile=tile) for tile in range(1, 6)]
    found = leaders([*choices, choice("b", 2.9), choice("c", 3.0)], Settings())
    assert [each.variant for each in found] == ["a", "b", "a", "a", "a", "a"]


def test_who_won_before_races_again_whatever_its_own_trial_says() -> None:
    """A trial of a disturbed moment would have cost a race that was won by half the time."""
    choices = [choice("a", 1.0), choice("b", 1.1), choice("champion", 20.0)]
    assert "champion" not in [each.variant for each in leaders(choices, Settings())]
    found = [each.variant for each in leaders(choices, Settings(), choices[-1])]
    assert found == ["a", "champion", "b"]
    assert len(leaders(choices, Settings(leaders=2), choices[-1])) == 2
    assert [each.variant for each in leaders(choices, Settings(), choices[0])] == ["a", "b"]


def test_a_candidate_whose_interval_reaches_down_to_the_best_races() -> None:
    unsure = choice("b", 1.6, width=0.5)
    assert unsure in leaders([choice("a", 1.0), unsure], Settings())


@pytest.mark.parametrize(
    ("load", "fastest", "scale", "rounds"),
    [(0.0, 0.9, 1.0, 28), (0.6, 0.9, 0.25, 7), (0.6, 3.0, 0.75, 7)],
)
def test_times_of_a_race_on_a_busy_machine_are_brought_to_scale(
    load: float, fastest: float, scale: float, rounds: int
) -> None:
    """As far down as an entrant was seen to come, whatever it is supposed to take."""
    entrants = [choice("a", 1.0), choice("b", 1.1)]
    outcome = RaceOutcome(
        "ok",
        samples=((4.0,) * 28, (4.4,) * 28),
        circumstances={"foreign_load": load, "steal": 0.0},
    )
    a, b = (each.candidate for each in entrants)
    race = fair_race(entrants, outcome, {a: Seen(fastest, 2.0), b: Seen(0.5, 2.0)})
    assert race.rounds[a] == pytest.approx((4.0 * scale,) * rounds)
    assert race.ratio(b, a)[0] == pytest.approx(1.1)


@pytest.mark.parametrize("load", [0.0, 0.4])
def test_a_race_beside_other_programs_counts_what_they_left_alone(load: float) -> None:
    """One of two entrants meets them in half of its rounds, the other in a few."""
    one = (4.0, 1.0, 1.0, 1.0, 1.0, 1.0) * 10
    other = (1.1, 3.0, 3.0, 3.0, 1.1, 1.1) * 10
    outcome = RaceOutcome("ok", samples=(one, other), circumstances={"foreign_load": load})
    run = Raced([choice("a", 1.0), choice("b", 1.1)], outcome)
    ratio = run.ratios()[1].median
    assert ratio == pytest.approx(1.1) if load else ratio > 1.5


def heat(*times: tuple[str, int, float], noise: float = 1e-4) -> Raced:
    entrants = [choice(variant, 1.0, tile=tile) for variant, tile, _ in times]
    samples = tuple(tuple(t * (1 + noise * (r % 3)) for r in range(12)) for _, _, t in times)
    return Raced(entrants, RaceOutcome("ok", samples=samples))


def names(choices: list[Choice]) -> list[tuple[str, object]]:
    return [(c.variant, dict(c.config)["tile"]) for c in choices]


def test_only_what_may_be_the_fastest_goes_on_from_a_heat_with_the_best_rival() -> None:
    run = heat(("a", 1, 1.0), ("a", 2, 1.3), ("a", 3, 1.001), ("b", 1, 1.2), ("b", 2, 1.1))
    assert names(run.best(4, Settings())) == [("a", 1), ("a", 3), ("b", 2)]


def test_a_rival_takes_the_last_place_when_one_variant_would_fill_the_final() -> None:
    run = heat(*(("a", tile, 1.0 + tile / 1000) for tile in range(6)), ("b", 1, 1.5))
    assert names(run.best(3, Settings())) == [("a", 0), ("a", 1), ("b", 1)]


def test_one_variant_alone_still_has_a_final_of_two() -> None:
    run = heat(("a", 1, 1.5), ("a", 2, 1.0), ("a", 3, 1.3))
    assert names(run.best(4, Settings())) == [("a", 2), ("a", 3)]


def test_a_heat_beside_other_programs_is_too_short_to_throw_anybody_out() -> None:
    """A quarter of its six rounds is two: nobody is known to be slower, and all keep a time."""
    entrants = [choice("a", 1.0), choice("a", 1.0, tile=2), choice("b", 1.0)]
    samples = tuple((t,) * 6 for t in (1.0, 1.5, 1.1))
    run = Raced(entrants, RaceOutcome("ok", samples=samples, circumstances={"foreign_load": 0.5}))
    assert run.best(3, Settings()) == [entrants[0], entrants[2], entrants[1]]
    assert not run.far_apart(Settings())
    race = Race({entrants[0].candidate: (2.0,) * 8})
    assert run.carried_over(entrants, race)[1].seconds == pytest.approx(3.0)


def test_what_fell_out_keeps_its_ratio_on_the_scale_of_the_final() -> None:
    run = heat(("a", 1, 1.0), ("a", 2, 1.5), ("b", 1, 1.1))
    a, slower, b = run.entrants
    race = Race({a.candidate: (2.0,) * 8, b.candidate: (2.2,) * 8})
    found = {c.candidate: c.seconds for c in run.carried_over(run.entrants, race)}
    assert found[slower.candidate] == pytest.approx(3.0, rel=1e-3)
    assert found[a.candidate] == found[b.candidate] == 1.0


def test_the_figures_of_a_policy_hold_to_what_was_seen() -> None:
    """The reference was slowed 40 times, and candidates on other threads were not."""
    a, b, c = choice("a", 2.0), choice("b", 3.0), choice("c", 90.0)
    subject = Subject(KEY, "cpu-a", "cpu", "hot", {}, "2026-11-30T00:00:00+00:00")
    policy = build_policy(subject, [a, b, c])
    seen = {a.candidate: Seen(80.0, 95.0), b.candidate: Seen(85.0, 86.0)}
    seen[c.candidate] = Seen(70.0, 99.0, disturbed=True)
    found = grounded_policy(policy, seen)
    assert found.winner.variant == "a"
    assert [(x.seconds, x.low, x.high) for x in found.variants] == [
        (80.0, 80.0, 95.0),
        (85.0, 85.0, 86.0),
        (90.0, 70.0, c.high),
    ]
    assert grounded_policy(policy, {}) == policy

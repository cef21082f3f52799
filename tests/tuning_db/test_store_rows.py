"""What goes into a store comes out of it, and nonsense does not go in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune_tuning_db import (
    DeviceRow,
    PinRow,
    PolicyRow,
    ProblemKey,
    Store,
    StoreWarning,
    TrialRow,
    utc_now,
)
from autotune_tuning_db.rows import pack_samples, unpack_samples

Trial = Callable[..., TrialRow]
Policy = Callable[..., PolicyRow]


def test_a_trial_comes_back_with_every_sample(store: Store, make_trial: Trial) -> None:
    row = make_trial(samples=(0.1, 1 / 3, 5e-7), median=0.1, low=5e-7, high=1 / 3)
    number = store.add_trial(row)
    (back,) = store.trials()
    assert back == dataclasses.replace(row, id=number, uid=back.uid)
    assert len(back.uid) == 32


def test_a_failed_trial_keeps_its_reason(store: Store, make_trial: Trial) -> None:
    row = make_trial(
        status="crashed", reason="signal 11", samples=(), median=None, low=None, high=None
    )
    store.add_trial(row)
    assert store.trials()[0].reason == "signal 11"
    assert store.trials()[0].median is None


@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_samples_are_kept_bit_for_bit(samples: list[float]) -> None:
    assert unpack_samples(pack_samples(samples)) == tuple(samples)


def test_trials_are_found_by_each_part_of_the_key(store: Store, make_trial: Trial) -> None:
    problem = make_trial().problem
    store.add_trial(make_trial())
    store.add_trial(make_trial(mode="hot"))
    store.add_trial(make_trial(device="cpu:other", fingerprint="f2", campaign=2))
    store.add_trial(make_trial(problem=dataclasses.replace(problem, dims=(("N", 1024),))))
    assert len(store.trials(problem)) == 3
    assert len(store.trials(problem, "cpu:abc")) == 2
    assert len(store.trials(problem, "cpu:abc", mode="hot")) == 1
    assert len(store.trials(fingerprints={"f2"})) == 1
    assert len(store.trials(campaign=2)) == 1
    assert len(store.trials(operation="attention")) == 4
    assert store.trials(operation="decode") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "great"},
        {"mode": "warm"},
        {"stage": "final"},
        {"variant": ""},
        {"started": "yesterday"},
        {"started": "2026-01-01T00:00:00"},
        {"samples": ()},
        {"samples": (0.0,)},
        {"samples": (-1.0,)},
        {"samples": (math.nan,)},
        {"samples": (math.inf,)},
        {"median": 0.0},
        {"low": None},
        {"circumstances": {"temperature": math.nan}},
        {"circumstances": {"array": object()}},
    ],
)
def test_a_trial_that_makes_no_sense_is_refused(
    make_trial: Trial, changes: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"."):
        make_trial(**changes)


def test_devices_keep_their_identity_when_the_label_changes(store: Store) -> None:
    store.add_device(DeviceRow("gpu:1", "cuda", "h200", "NVIDIA H200", {"sms": 132}))
    store.add_device(DeviceRow("gpu:1", "cuda", "h200", "NVIDIA H200 141GB HBM3e", {"sms": 132}))
    store.add_device(DeviceRow("gpu:2", "cuda", "a100", "NVIDIA A100", {"sms": 108}))
    assert [(row.identity, row.label) for row in store.devices()] == [
        ("gpu:1", "NVIDIA H200 141GB HBM3e"),
        ("gpu:2", "NVIDIA A100"),
    ]


def test_a_campaign_that_was_killed_has_no_end(store: Store) -> None:
    first = store.start_campaign("cpu:abc", {"budget": 60})
    second = store.start_campaign("cpu:abc", {})
    store.end_campaign(second)
    killed, ended = store.campaigns()
    assert (killed.id, killed.ended, killed.settings) == (first, None, {"budget": 60})
    assert ended.ended is not None
    assert ended.ended >= ended.started


def test_the_policy_written_last_wins_and_the_others_stay(
    store: Store, make_policy: Policy
) -> None:
    future = "2100-01-01T00:00:00+00:00"
    store.put_policy(make_policy(created=future, payload={"n": 1}))
    store.put_policy(make_policy(payload={"n": 2}))
    store.put_policy(make_policy(mode="hot", payload={"n": 3}))
    store.put_policy(make_policy(device="cpu:other", payload={"n": 4}))
    assert [row.payload["n"] for row in store.policies()] == [2, 3, 4]
    assert [row.payload["n"] for row in store.policies(device="cpu:abc")] == [2, 3]
    assert store.policies(operation="decode") == []
    problem = make_policy().problem
    history = store.policy_history(problem, "cpu:abc", "cold")
    assert [row.payload["n"] for row in history] == [1, 2]


def test_problems_that_differ_in_one_part_are_separate(store: Store, make_policy: Policy) -> None:
    base = make_policy().problem
    others = [
        ProblemKey(base.operation, base.dims, "float64", base.flags),
        ProblemKey(base.operation, base.dims, base.dtype, (("causal", True), ("scale", 0.125))),
        ProblemKey(base.operation, base.dims, base.dtype, base.flags, "strided"),
        dataclasses.replace(base, dims=(("N", 513),)),
    ]
    for key in (base, *others):
        store.put_policy(make_policy(problem=key))
    assert {row.problem for row in store.policies()} == {base, *others}


def test_a_pin_replaces_the_one_of_the_same_scope(store: Store, problem: ProblemKey) -> None:
    store.pin(PinRow("attention", None, "cpu:abc", "a"))
    store.pin(PinRow("attention", problem, "cpu:abc", "b", {"block": 8}))
    store.pin(PinRow("attention", None, "cpu:abc", "c"))
    assert [(pin.variant, pin.config) for pin in store.pins()] == [("c", None), ("b", {"block": 8})]
    assert store.unpin("attention", None, "cpu:abc")
    assert not store.unpin("attention", None, "cpu:abc")
    assert [pin.variant for pin in store.pins()] == ["b"]
    with pytest.raises(ValueError, match="decode"):
        PinRow("decode", problem, "cpu:abc", "a")


def test_the_generation_moves_with_policies_and_pins_only(
    store: Store, make_trial: Trial, make_policy: Policy, problem: ProblemKey
) -> None:
    with Store(store.path, readonly=True) as other:
        seen = [other.generation()]
        store.add_trial(make_trial())
        assert other.generation() == seen[-1]
        for change in (
            lambda: store.put_policy(make_policy()),
            lambda: store.pin(PinRow("attention", problem, "cpu:abc", "a")),
            lambda: store.unpin("attention", problem, "cpu:abc"),
        ):
            change()
            seen.append(other.generation())
        assert len(set(seen)) == 4
        assert sorted(seen) == seen


def test_entries_that_cannot_be_read_are_skipped_with_one_warning(
    store: Store, make_policy: Policy, make_trial: Trial
) -> None:
    for size in (1, 2, 3):
        store.put_policy(
            make_policy(problem=dataclasses.replace(make_policy().problem, dims=(("N", size),)))
        )
        store.add_trial(make_trial())
    db = store._db
    assert db is not None
    db.execute("UPDATE policies SET payload = '{\"half\": ' WHERE id = 2")
    db.execute("UPDATE trials SET samples = x'00ff' WHERE id < 3")
    with pytest.warns(StoreWarning, match="Skipped 1 entries") as caught:
        assert [row.problem.dim("N") for row in store.policies()] == [1, 3]
    assert len(caught) == 1
    with pytest.warns(StoreWarning, match="Skipped 2 entries"):
        assert [row.id for row in store.trials()] == [3]


def test_moments_have_one_spelling() -> None:
    assert len(utc_now()) == len("2026-01-31T12:00:00.000000+00:00")

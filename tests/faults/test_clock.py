"""A clock that jumps, back by years or on by as many: nothing is lost, nothing old comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filled import choice, keep, toy_problem

from autotune import dispatch, serving
from autotune.kept import KeptCode
from autotune.lookup import forget
from autotune.store import generation, open_tuning_db

PAST, FUTURE = "1999-01-01T00:00:00+00:00", "2099-01-01T00:00:00+00:00"


@pytest.mark.parametrize(("first", "then"), [(FUTURE, PAST), (PAST, FUTURE), (PAST, PAST)])
def test_the_policy_written_last_is_in_force(toy: str, first: str, then: str) -> None:
    keep(toy_problem(512), choice("numpy", 1e-6), created=first)
    before = generation()
    keep(toy_problem(512), choice("flipped", 1e-6), created=then)
    assert generation() != before
    serving._server = None
    forget()
    assert dispatch("toy_scale", (512,)).variant == "flipped"
    with open_tuning_db() as store:
        (policy,) = store.policies()
        assert policy.created == then
        assert store.integrity() == ()


def test_a_second_copy_set_aside_in_the_same_second_has_a_name_of_its_own(tmp_path: Path) -> None:
    from autotune_tuning_db.files import spare_name

    path = tmp_path / "tuning.db"
    names = set()
    for _ in range(3):
        spare = spare_name(path, "damaged")
        assert not spare.exists()
        spare.touch()
        names.add(spare.name)
    assert len(names) == 3


def test_code_from_the_future_is_used_and_pruned_like_any(private_home: Path) -> None:
    kept = KeptCode("clock", ".bin", largest=1 << 20)
    kept.get("one", lambda: b"code")
    far = 4e9
    os.utime(kept.file("one"), (far, far))
    assert kept.get("one", lambda: b"not asked for") == b"code"

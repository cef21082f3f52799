"""The store behind dispatch: never an exception, at most one warning, and news is noticed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from autotune.errors import StoreUnavailableError
from autotune.store import generation, load_snapshot, open_tuning_db
from autotune_tuning_db import PinRow, PolicyRow, ProblemKey, utc_now

PIN = PinRow("attention", None, "cpu-somewhere", "online")


def test_without_a_store_there_is_nothing_and_no_warning(
    private_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    snapshot, number = load_snapshot()
    assert snapshot.pins == ()
    assert number is None
    assert generation() is None
    assert not caplog.records
    assert not private_home.exists()


def test_every_change_moves_the_generation(private_home: Path) -> None:
    with open_tuning_db() as store:
        before = generation()
        assert load_snapshot()[1] == before
        store.pin(PIN)
    assert generation() != before
    snapshot, number = load_snapshot()
    assert snapshot.pins == (PIN,)
    assert number == generation()


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\x00" + b"\x00" * 99])
def test_a_damaged_store_is_one_warning_and_left_alone(
    private_home: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    file = private_home / "tuning.db"
    file.parent.mkdir()
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            snapshot, number = load_snapshot()
            assert (snapshot.pins, number, generation()) == ((), None, None)
    (record,) = caplog.records
    assert str(file) in record.getMessage()
    assert "tuning run" in record.getMessage()
    assert file.read_bytes() == content


def test_a_folder_in_its_place(private_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (private_home / "tuning.db").mkdir(parents=True)
    assert load_snapshot()[1] is None
    assert len(caplog.records) == 1
    with pytest.raises(StoreUnavailableError, match=r"tuning\.db.*AUTOTUNE_DB=FILE"):
        open_tuning_db()


def test_moving_the_database_is_noticed(
    private_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_tuning_db() as store:
        store.pin(PIN)
    assert len(load_snapshot()[0].pins) == 1
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "other.db"))
    assert load_snapshot()[0].pins == ()


def test_many_entries_that_cannot_be_read_are_named_by_a_few(
    private_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_tuning_db() as store:
        for size in range(40):
            problem = ProblemKey("attention", (("N", size),), "float32")
            store.put_policy(PolicyRow(problem, "cpu-somewhere", "cold", utc_now(), {}))
    with caplog.at_level(logging.WARNING):
        assert load_snapshot()[1] is not None
    assert 1 < len(caplog.records) < 10
    assert "35 more entries" in caplog.records[-1].getMessage()

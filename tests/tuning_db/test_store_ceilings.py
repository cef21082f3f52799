"""The rates measured of a device: one set for each, the latest, with what it was measured with."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from autotune_tuning_db import CeilingsRow, Store, StoreWarning, utc_now

RATES = {"copy": 2e10, "matrix float32": 1.5e12}


def row(device: str = "cpu:abc", **changes: object) -> CeilingsRow:
    given: dict[str, object] = {"measured": utc_now(), "toolchain": {"numpy": "2"}, "rates": RATES}
    return CeilingsRow(device, **(given | changes))  # type: ignore[arg-type]


def test_what_is_kept_comes_back(path: Path) -> None:
    kept = row()
    with Store(path) as store:
        assert store.ceilings("cpu:abc") is None
        store.put_ceilings(kept)
    with Store(path, readonly=True) as store:
        assert store.ceilings("cpu:abc") == kept
        assert store.ceilings("cpu:other") is None


def test_a_new_measurement_takes_the_place_of_the_old(path: Path) -> None:
    newer = row(rates={"copy": 3e10})
    with Store(path) as store:
        store.put_ceilings(row())
        store.put_ceilings(row("gpu"))
        store.put_ceilings(newer)
        assert store.ceilings("cpu:abc") == newer
        assert store.ceilings("gpu") is not None


def test_ceilings_do_not_move_the_generation(path: Path) -> None:
    with Store(path) as store:
        before = store.generation()
        store.put_ceilings(row())
        assert store.generation() == before


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_no_rate_is_below_or_beyond_reason(rate: float) -> None:
    with pytest.raises(ValueError, match="a rate is not a finite number above zero"):
        row(rates={"copy": rate})


def test_a_row_that_cannot_be_read_is_none(path: Path) -> None:
    with Store(path) as store:
        store.put_ceilings(row())
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE ceilings SET rates = '{'")
    raw.close()
    with Store(path) as store, pytest.warns(StoreWarning, match="cpu:abc"):
        assert store.ceilings("cpu:abc") is None

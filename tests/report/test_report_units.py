"""Numbers as they are shown."""

from __future__ import annotations

import math

import pytest

from autotune import units


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1.00 s"),
        (123.4, "123 s"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (1.234e-3, "1.23 ms"),
        (999.6e-6, "1.00 ms"),
        (45.67e-6, "45.7 us"),
        (5e-9, "5.00 ns"),
        (2.5e-10, "0.25 ns"),
        (math.nan, "-"),
        (math.inf, "-"),
        (None, "-"),
    ],
)
def test_seconds(value: float | None, shown: str) -> None:
    assert units.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.04, "0.0 s"),
        (-1.0, "0.0 s"),
        (9.949, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_duration(value: float, shown: str) -> None:
    assert units.duration(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (3 << 40, "3 TiB")],
)
def test_size(value: int, shown: str) -> None:
    assert units.size(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (9999, "9999"), (12_345, "12.3k"), (4_194_304, "4.19M")]
)
def test_count(value: int, shown: str) -> None:
    assert units.count(value) == shown


@pytest.mark.parametrize(
    ("value", "lead", "longer", "behind"),
    [
        (0.004, "0.4%", "0.4% longer", "+0.4%"),
        (0.123, "12%", "12% longer", "+12%"),
        (0.96, "96%", "96% longer", "+96%"),
        (0.996, "2.00x", "2.00x as long", "2.00x"),
        (1.5, "2.50x", "2.50x as long", "2.50x"),
        (534.0, "535x", "535x as long", "535x"),
        (-0.05, "-5.0%", "-5.0% longer", "-5.0%"),
    ],
)
def test_leads(value: float, lead: str, longer: str, behind: str) -> None:
    assert units.lead(value) == lead
    assert units.longer(value) == longer
    assert units.behind(value) == behind


def test_number() -> None:
    assert units.number(1, "policy", "policies") == "1 policy"
    assert units.number(0, "policy", "policies") == "0 policies"
    assert units.number(3, "trial") == "3 trials"

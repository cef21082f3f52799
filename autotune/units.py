"""Numbers as people read them: times, sizes, ratios and counts, each with its unit."""

from __future__ import annotations

import math

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_TWICE = 0.995
_COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def seconds(value: float | None) -> str:
    """Three digits and a unit: 1.23 ms; "-" when there is no time."""
    if value is None or not math.isfinite(value):
        return "-"
    for scale, unit in _TIMES:
        if value >= scale * 0.9995:
            return f"{_three(value / scale)} {unit}"
    return f"{value / 1e-9:.2g} ns"


def duration(value: float) -> str:
    """A length of time to wait: 0.4 s, 42 s, 3 min 05 s, 2 h 10 min."""
    if value < 9.95:
        return f"{max(value, 0.0):.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(value: float | None) -> str:
    """Bytes in binary units: 512 B, 1.5 MiB; "-" when unknown."""
    if value is None:
        return "-"
    for scale, unit in _SIZES:
        if value >= scale:
            number = value / scale
            return f"{number:.0f} {unit}" if number == int(number) else f"{number:.3g} {unit}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """A number of things: 512, 12.3k, 4.19M."""
    if value < 10_000:
        return f"{value:.0f}"
    scale, unit = next(each for each in _COUNTS if value >= each[0])
    return f"{_three(value / scale)}{unit}"


def lead(value: float | None) -> str:
    """How much longer another takes: 12%, 2.5x; "-" when unknown."""
    if value is None or not math.isfinite(value):
        return "-"
    if value >= _TWICE:
        return f"{_three(1.0 + value)}x"
    return f"{100 * value:.1f}%" if abs(value) < 0.0995 else f"{100 * value:.0f}%"


def longer(value: float) -> str:
    """The same in a sentence: 12% longer, 2.50x as long."""
    return f"{lead(value)} as long" if value >= _TWICE else f"{lead(value)} longer"


def behind(value: float) -> str:
    """The same in a table: +12%, 2.50x."""
    return lead(value) if value >= _TWICE or value < 0 else f"+{lead(value)}"


def number(amount: int, noun: str, plural: str = "") -> str:
    """A count with its noun: 1 variant, 3 variants."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {plural or noun + 's'}"


def _three(value: float) -> str:
    """Three significant digits without an exponent."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"

"""What was set out to reach beside the worst that was measured, for docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tables import load, table

HEAD = ("rows", "goal", "the worst of them", "of so many", "misses it")
Row = Mapping[str, Any]
AT_MOST, AT_LEAST = 1, -1
BESIDE, RATIO = ("ratio", "low", "high"), ("ratio",)
"""Where a row has a value and its interval: apart, or all three together."""
RATE, SHARE = ("ours_terabytes",), ("bandwidth_share", "share_low", "share_high")
HOST = ("median_us", "low_us", "high_us")


def _rows(name: str) -> Sequence[Row]:
    document = load(name)
    return document["rows"] if document else ()


def _values(row: Row, keys: Sequence[str]) -> list[float]:
    """The value, and its interval where there is one."""
    found = [row[key] for key in keys]
    return list(found[0]) if isinstance(found[0], list) else found


def _named(row: Row) -> str:
    size = row.get("N") or row.get("n") or row.get("tokens")
    return f"{row.get('dtype', 'float32')} {size}" if size else str(row["what"])


def _goal(
    what: str, sign: int, goal: float, rows: Sequence[Row], keys: Sequence[str]
) -> tuple[object, ...]:
    """A line: the value that is furthest from a goal, with its interval, and who misses it."""
    worst = max(rows, key=lambda row: sign * _values(row, keys)[0])
    missed = [_named(row) for row in rows if sign * _values(row, keys)[0] > sign * goal]
    value, *ends = _values(worst, keys)
    interval = " ({:.3f}-{:.3f})".format(*ends) if ends else ""
    limit = f"{'at most' if sign == AT_MOST else 'at least'} {goal:.4g}"
    return what, limit, f"{value:.3f}{interval}", len(rows), ", ".join(missed) or "-"


def attention() -> list[str]:
    """Forward plus backward on a GPU over PyTorch's best backend, and the host's time."""
    rows, launches = _rows("attention_gpu"), _rows("gpu_dispatch")
    if not rows or not launches:
        return []

    def long(*dtypes: str) -> list[Row]:
        return [row for row in rows if row["dtype"] in dtypes and row["N"] >= 4096]

    def short(mode: str) -> list[Row]:
        return [row for row in rows if row["N"] <= 1024 and row["mode"] == mode]

    one = [row for row in launches if row["what"] == "dispatch(scale, x)(x, out=y)"]
    halves = long("bfloat16", "float16")
    lines = [
        _goal("float64, N >= 4096", AT_MOST, 0.45, long("float64"), BESIDE),
        _goal("float32, N >= 4096", AT_MOST, 0.45, long("float32"), BESIDE),
        _goal("all dtypes, N <= 1024, called", AT_MOST, 0.25, short("cold"), BESIDE),
        _goal("all dtypes, N <= 1024, as a graph", AT_MOST, 0.7, short("graph"), BESIDE),
        _goal("16 bits, N >= 4096", AT_MOST, 1 / 0.6, halves, BESIDE),
        _goal("dispatch and a launch, us", AT_MOST, 7, one, HOST),
    ]
    return [*table(HEAD, lines), ""]


def study() -> list[str]:
    """Decode, MLP and block: terabytes a second, shares, and ratios to PyTorch."""
    decode = [row for row in _rows("decode_gpu") if row["mode"] == "cold"]
    mlp, block, cpu = _rows("norm_mlp_gpu"), _rows("block_gpu"), _rows("decode_cpu")
    if not (decode and mlp and block and cpu):
        return []

    def cached(dtype: str, batch: int, heads: int, least: int) -> list[Row]:
        wanted = dtype, batch, heads
        return [r for r in decode if (r["dtype"], r["B"], r["H"]) == wanted and r["N"] >= least]

    batched, grouped = cached("bfloat16", 16, 32, 65536), cached("float64", 1, 32, 65536)[:1]
    alone, few = cached("float64", 1, 1, 1 << 20), [row for row in decode if row["N"] <= 4096]
    narrow = [row for row in mlp if row["D"] == 64 and row["dtype"] != "bfloat16"]
    wide = [row for row in mlp if row["D"] == 4096]
    short = [row for row in block if row["N"] <= 2048]
    long = [row for row in block if row["N"] == 8192]
    mlp_cpu, block_cpu = _rows("norm_mlp_cpu"), _rows("block_cpu")
    lines = [
        _goal("decode bfloat16 B=16 H=32 Hkv=8, n >= 65536, TB/s", AT_LEAST, 4.2, batched, RATE),
        _goal("decode float64 H=32 Hkv=8, n = 65536, TB/s", AT_LEAST, 3.5, grouped, RATE),
        _goal("decode float64 one head, n = 1048576, TB/s", AT_LEAST, 3, alone, RATE),
        _goal("decode, n <= 4096, over PyTorch", AT_MOST, 1, few, BESIDE),
        _goal("norm_mlp float32, float64, D = 64, over PyTorch", AT_MOST, 0.6, narrow, RATIO),
        _goal("norm_mlp bfloat16, D = 4096, over PyTorch", AT_MOST, 1.02, wide, RATIO),
        _goal("block, N <= 2048, over PyTorch", AT_MOST, 0.25, short, RATIO),
        _goal("block, N = 8192, over PyTorch", AT_MOST, 0.6, long, RATIO),
        _goal("two CPU cores: norm_mlp over PyTorch", AT_MOST, 1, mlp_cpu, RATIO),
        _goal("two CPU cores: block over PyTorch", AT_MOST, 1, block_cpu, RATIO),
        _goal("two CPU cores: decode, share of read bandwidth", AT_LEAST, 0.8, cpu, SHARE),
    ]
    return [*table(HEAD, lines), ""]
